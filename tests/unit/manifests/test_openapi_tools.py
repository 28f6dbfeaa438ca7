"""Tools from an OpenAPI document: what is written, what is refused with its place, and what a real server then gets."""

import asyncio
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import uvicorn
from fastapi import FastAPI, Form, Header, Query, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

from orga.activities.adapters.manifests.manifest import Manifest
from orga.activities.adapters.manifests.openapi import CannotExpress, OpenApi, WrittenTool
from orga.activities.adapters.manifests.tool import manifest_tool
from orga.activities.adapters.toml_text import read_toml
from orga.activities.adapters.yaml_text import read_yaml
from orga.client.cli.main import run_command
from tests.support.parts.free_port import free_port
from tests.support.tools.calls import result

Shown = pytest.CaptureFixture[str]

NO_ROLES: list[str] = []


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def a_document(operation: dict[str, Any], path: str = "/pets", method: str = "get", **more: Any) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "https://pets.example.org/v1/"}],
        "paths": {path: {method: {"operationId": "it", **operation}}},
        **more,
    }


def written(document: dict[str, Any], **settings: Any) -> WrittenTool:
    """Return the tool of the only operation."""
    secrets = settings.pop("secrets", {})
    read = OpenApi(document, **settings)
    [operation] = read.operations()
    return read.tool(operation, secrets)


def manifest_of(document: dict[str, Any], **settings: Any) -> Manifest:
    return Manifest.model_validate(read_toml(written(document, **settings).text), extra="forbid")


def a_parameter(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"parameters": [{"name": "x", "in": "query", "schema": schema, **more}]}


def a_body(schema: Any, kind: str = "application/json", *, required: bool = True) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {kind: {"schema": schema}}}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(
            {"type": "string", "minLength": 2, "maxLength": 9}, {"type": "string", "min": 2, "max": 9}, id="text"
        ),
        pytest.param({"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "a+"}, id="a whole pattern"),
        pytest.param({"type": "string", "pattern": "a+"}, {"type": "string", "pattern": ".*(?:a+).*"}, id="a pattern"),
        pytest.param(
            {"type": "string", "pattern": "^a|b$"}, {"type": "string", "pattern": ".*(?:^a|b$).*"}, id="alternatives"
        ),
        pytest.param({"type": "string", "pattern": "(?=a)"}, {"type": "string"}, id="a pattern of JavaScript alone"),
        pytest.param({"type": "string", "enum": ["a", "b"]}, {"type": "enum", "allowed": ("a", "b")}, id="an enum"),
        pytest.param({"enum": ["a", "b"]}, {"type": "enum", "allowed": ("a", "b")}, id="an enum without a type"),
        pytest.param({"type": "string", "const": "a"}, {"type": "enum", "allowed": ("a",)}, id="a constant"),
        pytest.param({"type": "integer", "minimum": 1}, {"type": "integer", "min": 1}, id="an integer"),
        pytest.param({"type": "integer", "exclusiveMinimum": 1}, {"type": "integer", "min": 2}, id="above, in 3.1"),
        pytest.param(
            {"type": "integer", "maximum": 9, "exclusiveMaximum": True},
            {"type": "integer", "max": 8},
            id="below, in 3.0",
        ),
        pytest.param({"type": "integer", "enum": [1, 2]}, {"type": "integer", "allowed": (1, 2)}, id="numbers"),
        pytest.param({"type": ["number", "null"]}, {"type": "number"}, id="a type or null"),
        pytest.param({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, {"type": "boolean"}, id="a schema or null"),
        pytest.param(
            {"allOf": [{"$ref": "#/components/schemas/Name"}]}, {"type": "string", "max": 5}, id="a reference"
        ),
        pytest.param(
            {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            {"type": "array", "items": {"type": "integer"}, "max": 3},
            id="a list",
        ),
    ],
)
def test_a_schema_becomes_an_argument(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    components = {"schemas": {"Name": {"type": "string", "maxLength": 5}}}
    manifest = manifest_of(a_document(a_parameter(schema), components=components))
    argument = manifest.arguments["x"].model_dump(exclude_unset=True)
    assert argument.pop("required") is False
    assert argument == expected


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
@pytest.mark.parametrize(
    ("method", "effect"),
    [
        ("get", "read_only"),
        ("head", "read_only"),
        ("put", "idempotent"),
        ("delete", "idempotent"),
        ("post", "irreversible"),
        ("patch", "irreversible"),
    ],
)
def test_the_method_decides_the_effect(version: str, method: str, effect: str) -> None:
    manifest = manifest_of({**a_document({}, method=method), "openapi": version})
    assert (manifest.effect, manifest.http and manifest.http.method) == (effect, method.upper())


def test_parameters_of_the_path_hold_for_each_operation_unless_it_has_its_own() -> None:
    document = a_document(
        {"parameters": [{"name": "id", "in": "path", "schema": {"type": "integer"}}]}, "/pets/{id}/{of}"
    )
    document["paths"]["/pets/{id}/{of}"]["parameters"] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in ("id", "of")
    ]
    manifest = manifest_of(document)
    assert manifest.http
    assert manifest.http.url == "https://pets.example.org/v1/pets/{id}/{of}"
    assert [argument.type for argument in manifest.arguments.values()] == ["integer", "string"]


def test_odd_names_become_valid_ones() -> None:
    names = ["filter[name]", "9lives", "x-y", "x_y"]
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    document = a_document({"operationId": "pets.find/all", "parameters": parameters})
    manifest = manifest_of(document, prefix="shop_")
    assert manifest.name == "shop_pets_find_all"
    assert manifest.http
    assert manifest.http.query == {
        "filter[name]": "{filter_name}",
        "9lives": "{_9lives}",
        "x-y": "{x_y}",
        "x_y": "{x_y_query}",
    }


def test_a_body_becomes_arguments_and_read_only_parts_are_left_out() -> None:
    schema = {
        "allOf": [
            {"type": "object", "required": ["owner"], "properties": {"owner": {"$ref": "#/components/schemas/Owner"}}},
            {
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "tags": {"type": "array", "items": {"type": "string"}},
                }
            },
        ]
    }
    owner = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    manifest = manifest_of(a_document(a_body(schema), method="post", components={"schemas": {"Owner": owner}}))
    assert manifest.http
    assert manifest.http.json_body == {"owner": {"name": "{owner_name}"}, "tags": "{tags}"}
    assert {name: each.is_required for name, each in manifest.arguments.items()} == {"owner_name": True, "tags": False}


@pytest.mark.parametrize(
    ("schemes", "security", "headers", "variables"),
    [
        pytest.param(
            {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
            [{"key": NO_ROLES}],
            {"X-Key": "{secret:PETS_KEY}"},
            ("PETS_KEY",),
            id="a key",
        ),
        pytest.param(
            {"key": {"type": "apiKey", "in": "cookie", "name": "sid"}},
            [{"key": NO_ROLES}],
            {"Cookie": "sid={secret:PETS_KEY}"},
            ("PETS_KEY",),
            id="a cookie",
        ),
        pytest.param(
            {"key": {"type": "http", "scheme": "Bearer"}},
            [{"key": NO_ROLES}],
            {"Authorization": "Bearer {secret:PETS_KEY}"},
            ("PETS_KEY",),
            id="a bearer",
        ),
        pytest.param(
            {"key": {"type": "http", "scheme": "basic"}},
            [{"key": NO_ROLES}],
            {"Authorization": "Basic {secret:PETS_KEY}"},
            ("PETS_KEY",),
            id="a password",
        ),
        pytest.param(
            {"a b": {"type": "oauth2", "flows": {}}},
            [{"a b": ["read"]}],
            {"Authorization": "Bearer {secret:PETS_A_B}"},
            ("PETS_A_B",),
            id="OAuth",
        ),
        pytest.param(
            {"q": {"type": "apiKey", "in": "query", "name": "k"}, "key": {"type": "http", "scheme": "bearer"}},
            [{"q": NO_ROLES}, {"key": NO_ROLES}],
            {"Authorization": "Bearer {secret:PETS_KEY}"},
            ("PETS_KEY",),
            id="the first that is possible",
        ),
        pytest.param(
            {"key": {"type": "http", "scheme": "bearer"}}, [{}, {"key": NO_ROLES}], {}, (), id="none is enough"
        ),
        pytest.param({"key": {"type": "http", "scheme": "bearer"}}, [], {}, (), id="none for this operation"),
    ],
)
def test_a_security_scheme_becomes_a_secret_header(
    schemes: dict[str, Any], security: list[Any], headers: dict[str, str], variables: tuple[str, ...]
) -> None:
    document = a_document({"security": security}, components={"securitySchemes": schemes}, security=[{"key": NO_ROLES}])
    tool = written(document)
    manifest = Manifest.model_validate(read_toml(tool.text))
    assert manifest.http
    assert (manifest.http.headers, tool.secrets) == (headers, variables)


def test_a_secret_s_variable_can_be_chosen() -> None:
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    document = a_document({}, components={"securitySchemes": schemes}, security=[{"key": NO_ROLES}])
    assert written(document, secrets={"key": "SHOP_TOKEN"}).secrets == ("SHOP_TOKEN",)


LOOP = {"properties": {"x": {"$ref": "#/components/schemas/Loop"}}, "required": ["x"]}
OPEN = {"type": "object", "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize(
    ("operation", "place", "problem"),
    [
        pytest.param(
            a_parameter({"type": "object"}, required=True), "/parameters/0/schema", "type object", id="an object"
        ),
        pytest.param(a_parameter({}, required=True), "/parameters/0/schema", "type any", id="any value"),
        pytest.param(
            a_parameter({"type": ["string", "integer"]}, required=True),
            "/parameters/0/schema",
            "type any",
            id="two types",
        ),
        pytest.param(
            a_parameter({"type": "array", "items": {"type": "string"}}, required=True, explode=False),
            "/parameters/0",
            "a repeated name",
            id="a list with commas",
        ),
        pytest.param(
            a_parameter({"type": "string"}, required=True, style="deepObject"),
            "/parameters/0/style",
            "deepObject",
            id="style",
        ),
        pytest.param(
            {"parameters": [{"name": "x", "in": "cookie", "required": True, "schema": {"type": "string"}}]},
            "/parameters/0",
            "in cookie",
            id="a cookie",
        ),
        pytest.param(
            a_body(OPEN), "/requestBody/content/application~1json/schema", "named properties", id="an open object"
        ),
        pytest.param(
            a_body({"type": "string"}), "/requestBody/content/application~1json/schema", "named", id="a bare text"
        ),
        pytest.param(
            a_body({"oneOf": [LOOP, OPEN]}),
            "/requestBody/content/application~1json/schema/oneOf",
            "alternatives",
            id="alternatives",
        ),
        pytest.param(a_body({}, "multipart/form-data"), "/requestBody/content", "multipart/form-data", id="an upload"),
        pytest.param(
            a_body({"required": ["o"], "properties": {"o": {"type": "array", "items": OPEN}}}),
            "/requestBody/content/application~1json/schema/properties/o/items",
            "type object",
            id="a list of objects",
        ),
        pytest.param(a_body({"$ref": "other.json#/X"}), "/schema", "leads out of the document", id="another file"),
        pytest.param(
            a_body({"$ref": "http://10.0.0.1/x"}), "/schema", "leads out of the document", id="another server"
        ),
        pytest.param(a_body({"$ref": "#/components/nothing"}), "/schema", "leads nowhere", id="a missing target"),
        pytest.param(a_body({"$ref": "#/components/schemas/A"}), "#/components/schemas", "in a circle", id="a circle"),
        pytest.param(a_body({"$ref": "#/components/schemas/Loop"}), "#/components/schemas/Loop", "deeply", id="a loop"),
        pytest.param(
            {"security": [{"q": NO_ROLES}]}, "/security/0/q", "apiKey query cannot be used", id="a key in the query"
        ),
        pytest.param({"security": [{"gone": NO_ROLES}]}, "/security/0/gone", "not described", id="an unknown scheme"),
    ],
)
def test_what_a_manifest_cannot_express_is_refused_with_its_place(
    operation: dict[str, Any], place: str, problem: str
) -> None:
    schemas = {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}, "Loop": LOOP}
    schemes = {"q": {"type": "apiKey", "in": "query", "name": "k"}}
    document = a_document(operation, method="post", components={"schemas": schemas, "securitySchemes": schemes})
    with pytest.raises(CannotExpress) as caught:
        written(document)
    assert place in caught.value.place.pointer
    assert problem in caught.value.problem


def test_optional_parts_that_cannot_be_expressed_are_left_out_and_reported() -> None:
    schema = {"required": ["name"], "properties": {"name": {"type": "string"}, "extra": OPEN}}
    parameters = [{"name": "x", "in": "query", "schema": {"type": "object"}}]
    tool = written(a_document({**a_body(schema), "parameters": parameters}, method="post"))
    assert list(Manifest.model_validate(read_toml(tool.text)).arguments) == ["name"]
    assert [each.partition(": ")[0] for each in tool.left_out] == [
        "#/paths/~1pets/post/parameters/0/schema",
        "#/paths/~1pets/post/requestBody/content/application~1json/schema/properties/extra",
    ]
    needed = {"required": ["o", "name"], "properties": {"name": {"type": "string"}, "o": OPEN}}
    tool = written(a_document(a_body(needed, required=False), method="post"))
    assert "arguments" not in read_toml(tool.text), "an optional body is left out as a whole"


@pytest.mark.parametrize(
    ("servers", "settings", "url"),
    [
        ([{"url": "https://a.org/{v}", "variables": {"v": {"default": "v2"}}}], {}, "https://a.org/v2/pets"),
        ([{"url": "/v3"}], {"address": "https://a.org/docs/openapi.json"}, "https://a.org/v3/pets"),
        ([], {"address": "https://a.org/docs/openapi.json"}, "https://a.org/pets"),
        ([{"url": "/v3"}], {"server": "https://b.org/x/"}, "https://b.org/x/pets"),
    ],
)
def test_the_server_s_address_is_complete(servers: list[Any], settings: dict[str, str], url: str) -> None:
    manifest = manifest_of({**a_document({}), "servers": servers}, **settings)
    assert manifest.http
    assert manifest.http.url == url


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"servers": [{"url": "/v1"}]}, "pass --server URL", id="a path alone"),
        pytest.param({"servers": [{"url": "https://{host}/"}]}, "pass --server URL", id="a variable without a value"),
        pytest.param(
            {"servers": [{"url": "http://a.org"}], "security": [{"k": NO_ROLES}]}, "in the clear", id="no TLS"
        ),
        pytest.param({"openapi": "2.0"}, "only OpenAPI 3.0 and 3.1", id="another version"),
        pytest.param({"openapi": None, "swagger": "2.0"}, "2.0: only OpenAPI", id="Swagger"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused(change: dict[str, Any], problem: str) -> None:
    schemes = {"k": {"type": "http", "scheme": "bearer"}}
    with pytest.raises(CannotExpress, match=problem):
        written({**a_document({}, components={"securitySchemes": schemes}), **change})


@pytest.mark.parametrize("value", [None, [], "x", {"openapi": "3.0.0"}, {"openapi": "3.0.0", "paths": [1]}])
def test_a_document_of_another_shape_has_no_operations(value: Any) -> None:
    with pytest.raises(CannotExpress, match="only OpenAPI") if not isinstance(value, dict) else nullcontext():
        assert list(OpenApi(value).operations()) == []


def test_schemas_that_contain_each_other_take_no_long_time() -> None:
    schemas = {f"S{n}": {"allOf": [{"$ref": f"#/components/schemas/S{m}"} for m in range(9)]} for n in range(9)}
    document = a_document(a_body({"$ref": "#/components/schemas/S0"}), method="post", components={"schemas": schemas})
    began = time.process_time()
    with pytest.raises(CannotExpress, match=r"deeply|complex"):
        written(document)
    assert time.process_time() - began < 20


async def test_yaml_is_read_with_dates_as_texts() -> None:
    assert await read_yaml(b"a: 2026-01-02\nb: {200: [yes, 1.5, null]}") == {
        "a": "2026-01-02",
        "b": {"200": [True, 1.5, None]},
    }


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="a crash of the parser"),
        pytest.param(
            b"a: &a [x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 9)) for n in range(98, 110)),
            id="a bomb",
        ),
        pytest.param(b"a: [", id="no YAML"),
        pytest.param(b"!!python/object/apply:os.system [id]", id="code"),
        pytest.param(b"&a [*a]", id="a list that contains itself"),
    ],
)
async def test_hostile_yaml_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="no valid YAML"):
        await read_yaml(text)


async def test_references_that_repeat_values_count_each_time() -> None:
    shared = b"a: &a [" + b"1," * 1_000 + b"]\n"
    fits, bomb = (shared + b"b: [" + b"*a," * times + b"]" for times in (1_000, 6_000))
    assert len((await read_yaml(fits))["b"]) == 1_000
    with pytest.raises(ValueError, match="it has more than 5,000,000 values"):
        await read_yaml(bomb)


class Owner(BaseModel):
    name: str
    age: int | None = None


class Pet(BaseModel):
    name: str = Field(min_length=1, max_length=50, pattern="^[A-Z][a-z]+$")
    kind: Literal["cat", "dog"] = "cat"
    weight: float | None = Field(None, gt=0)
    tags: list[str] = []
    owner: Owner
    notes: dict[str, str] = {}


def a_shop(secrets: list[str] | None = None) -> FastAPI:
    """Return a server that notes the secrets that it gets."""
    shop, noted = FastAPI(title="Pet shop"), [] if secrets is None else secrets

    @shop.get("/pets/{pet_id}", tags=["pets"], operation_id="getPet")
    def get_pet(
        pet_id: int,
        tag: Annotated[list[str] | None, Query()] = None,
        x_trace: Annotated[str, Header()] = "",
        *,
        token: Annotated[HTTPAuthorizationCredentials, Security(HTTPBearer())],
    ) -> dict[str, Any]:
        noted.append(token.credentials)
        return {"id": pet_id, "tag": tag, "trace": x_trace}

    @shop.post("/pets", tags=["pets"], operation_id="createPet")
    def create_pet(pet: Pet, key: Annotated[str, Security(APIKeyHeader(name="X-Key"))]) -> dict[str, Any]:
        noted.append(key)
        return pet.model_dump(exclude_unset=True)

    @shop.post("/login", tags=["auth"], operation_id="login")
    def login(user: Annotated[str, Form()], code: Annotated[int, Form()]) -> list[Any]:
        return [user, code]

    @shop.post("/batch", tags=["auth"], operation_id="batch")
    def batch(pets: list[Pet]) -> int:
        return len(pets)

    assert all(map(callable, (get_pet, create_pet, login, batch)))
    return shop


@contextmanager
def running(shop: FastAPI) -> Generator[str]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(shop, port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def test_a_real_server_s_document_becomes_tools_that_call_it(capsys: Shown) -> None:
    secrets: list[str] = []
    with running(a_shop(secrets)) as url:
        source = f"{url}/openapi.json"
        assert run_command(["tools", "import-openapi", source, "--tag", "pets", "--only", "POST /login", "--json"]) == 0
        shown = capsys.readouterr()
        tools = {each["name"]: each for each in json.loads(shown.out)["written"]}
        assert {name: each["effect"] for name, each in tools.items()} == {
            "getPet": "read_only",
            "createPet": "irreversible",
            "login": "irreversible",
        }
        assert "createPet: left out: #/components/schemas/Pet/properties/notes" in shown.err
        assert "to set where the worker runs: PET_SHOP_APIKEYHEADER, PET_SHOP_HTTPBEARER" in shown.err
        assert run_command(["tools", "check", *(each["file"] for each in tools.values())]) == 0

        def answer(tool_name: str, **arguments: Any) -> Any:
            manifest = Manifest.model_validate(read_toml(Path(tools[tool_name]["file"]).read_text()), extra="forbid")
            env = {"PET_SHOP_HTTPBEARER": "a-bearer-token", "PET_SHOP_APIKEYHEADER": "an-api-key"}
            tool = manifest_tool(manifest, Path.cwd(), env, allow_hosts=["127.0.0.1"])
            return json.loads(asyncio.run(result(tool, **arguments)))

        pet = {"name": "Tom", "tags": ["a", "b"], "weight": 2.5}
        assert answer("createPet", owner_name="Ada\nLovelace", **pet) == {**pet, "owner": {"name": "Ada\nLovelace"}}
        found = answer("getPet", pet_id=7, tag=["x", "y & z"], x_trace="t1")
        assert found == {"id": 7, "tag": ["x", "y & z"], "trace": "t1"}
        assert answer("getPet", pet_id=7) == {"id": 7, "tag": None, "trace": ""}
        assert answer("login", user="a=b&c", code=7) == ["a=b&c", 7]
    assert secrets == ["an-api-key", "a-bearer-token", "a-bearer-token"]


def test_a_refused_operation_prevents_the_import_unless_it_is_skipped(capsys: Shown) -> None:
    Path("shop.json").write_text(json.dumps({**a_shop().openapi(), "servers": [{"url": "https://pets.example.org"}]}))
    assert run_command(["tools", "import-openapi", "shop.json"]) == 2
    shown = capsys.readouterr()
    assert "POST /batch: shop.json#/paths/~1batch/post/requestBody/content/application~1json/schema" in shown.err
    assert "Nothing was written" in shown.err
    assert not Path("tools").exists()
    assert run_command(["tools", "import-openapi", "shop.json", "--skip-refused", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert [each["operation"] for each in reported["refused"]] == ["POST /batch"]
    assert sorted(path.name for path in Path("tools").iterdir()) == ["createPet.toml", "getPet.toml", "login.toml"]
    assert run_command(["tools", "import-openapi", "shop.json", "--only", "login"]) == 2
    assert "already exists. Nothing was written" in capsys.readouterr().err


def test_the_preview_writes_nothing(capsys: Shown) -> None:
    text = "openapi: 3.0.1\ninfo: {title: T, version: 1}\nservers: [{url: 'https://a.org'}]\n"
    Path("a.yaml").write_text(text + "paths: {/x: {get: {summary: Look at x., responses: {200: {description: x}}}}}\n")
    assert run_command(["tools", "import-openapi", "a.yaml", "--print"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# tools/get_x.toml\n# GET /x of T, from its OpenAPI document.")
    assert 'description = "Look at x."' in shown
    assert sorted(path.name for path in Path().iterdir()) == ["a.yaml"]


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["gone.json"], "gone.json: cannot be read: No such file"),
        (["bad.json"], "bad.json: cannot be read: it is no valid YAML"),
        (["http://127.0.0.1:1/x"], "cannot be fetched"),
        (["a.json", "--only", "nothing"], "no such operation. It has 1 operation. Operations: read_file"),
        (["a.json", "--tag", "nothing"], "no operation has this tag"),
        (["a.json"], "the name 'read_file' is taken by a built-in tool; add --prefix TEXT"),
        (["a.json", "--secret", "x"], "--secret 'x': is no SCHEME=VARIABLE"),
        (["a.json", "--print", "--json"], "Remove --json"),
    ],
)
def test_what_cannot_be_imported_is_explained(capsys: Shown, arguments: list[str], reported: str) -> None:
    Path("bad.json").write_text("{")
    Path("a.json").write_text(json.dumps(a_document({"operationId": "read_file"})))
    assert run_command(["tools", "import-openapi", *arguments]) == 2
    assert reported in " ".join(capsys.readouterr().err.split())
    assert not Path("tools").exists()


def test_a_large_document_asks_for_a_choice(capsys: Shown) -> None:
    document = a_document({})
    document["paths"] = {f"/p{n}": {"get": {"tags": ["even" if n % 2 == 0 else "odd"]}} for n in range(30)}
    Path("a.json").write_text(json.dumps(document))
    assert run_command(["tools", "import-openapi", "a.json"]) == 2
    assert "It has 30 operations. Tags: even (15), odd (15)" in " ".join(capsys.readouterr().err.split())
    assert run_command(["tools", "import-openapi", "a.json", "--only", "get /p1*", "--print"]) == 0
    assert capsys.readouterr().out.count("effect =") == 11
