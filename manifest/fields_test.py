"""The table of fields against the two other places that state it: the schema and the document."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from manifest import run_manifest_pb2
from manifest.agreement import complete
from manifest.fields import FIELD_BY_PATH, FIELDS, GROUPS, Field, group_of
from manifest.value_rules import FieldType, shown

DOCUMENT = Path(__file__).parent.parent / "docs" / "spec" / "manifest.md"

SCHEMA = FileDescriptorProto.FromString(run_manifest_pb2.DESCRIPTOR.serialized_pb)

PROTOBUF_TYPES = {
    FieldDescriptorProto.TYPE_STRING: FieldType.TEXT,
    FieldDescriptorProto.TYPE_BOOL: FieldType.SWITCH,
    FieldDescriptorProto.TYPE_UINT32: FieldType.INTEGER,
    FieldDescriptorProto.TYPE_UINT64: FieldType.INTEGER,
}


def schema_fields(message: str = "RunManifest", prefix: str = "") -> dict[str, FieldType]:
    fields: dict[str, FieldType] = {}
    (members,) = (one.field for one in SCHEMA.message_type if one.name == message)
    for field in members:
        if field.type == FieldDescriptorProto.TYPE_MESSAGE:
            fields |= schema_fields(field.type_name.rpartition(".")[2], f"{field.name}.")
        elif field.label == FieldDescriptorProto.LABEL_REPEATED:
            fields[prefix + field.name] = FieldType.INTEGERS
        else:
            fields[prefix + field.name] = PROTOBUF_TYPES[field.type]
    return fields


def test_the_table_has_the_fields_of_the_schema() -> None:
    assert {field.path: field.type for field in FIELDS} == schema_fields()


def test_groups_are_the_messages_of_the_schema() -> None:
    groups = {group_of(path) for path in schema_fields()} - {""}
    assert groups == set(GROUPS)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: str(field.path))
def test_defaults_obey_their_own_rule(field: Field) -> None:
    assert field.default is None or field.rule.violation(field.default) is None


def test_only_groups_that_are_optional_have_fields_without_a_default() -> None:
    required = {group_of(field.path) for field in FIELDS if field.default is None}
    assert required == {"model", "fault"}


def test_defaults_of_a_plain_run_leave_out_model_and_fault() -> None:
    groups = {group_of(path) for path in complete({})}
    assert groups == {"", "deadlines"}


def documented_row(field: Field) -> str:
    default = "required" if field.default is None else f"`{shown(field.default)}`"
    allowed = field.rule.describe()
    return f"| `{field.path}` | {field.type.name.lower()} | {allowed} | {default} |"


def test_the_document_shows_the_table() -> None:
    section = DOCUMENT.read_text("utf-8").partition("## Fields")[2].partition("## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [documented_row(field) for field in FIELDS]
    assert len(FIELD_BY_PATH) == len(FIELDS)
