"""Converts operations of an OpenAPI document (3.0 or 3.1) to manifests of HTTP tools.

If a manifest cannot express a part of an operation, the operation is refused with that part's place in the document.
Only an optional part is left out instead, and reported.
"""

import json
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import urljoin

from pydantic import ValidationError

from orga.activities.adapters.manifests.flaws import manifest_flaws
from orga.activities.adapters.manifests.manifest import Manifest
from orga.activities.adapters.toml_text import read_toml
from orga.workflows.types.text import LinearPattern, clean_text, clip, one_line

METHODS = ("get", "head", "post", "put", "patch", "delete")
_EFFECTS = {"get": "read_only", "head": "read_only", "put": "idempotent", "delete": "idempotent"}
"""The effects that HTTP defines for methods. All other methods are irreversible."""

_MAX_REFERENCES = 50
"""References that lead from one to the next."""
_MAX_DEPTH = 8
_MAX_STEPS = 1_000_000
"""References and schemas that are resolved for one document. In a hostile one, schemas can contain each other."""

_MAX_DESCRIPTION_CHARS = 1_000
_MAX_ARGUMENT_DESCRIPTION_CHARS = 300
_IGNORED_HEADERS = {"accept", "content-type", "authorization"}
"""Header parameters that must be ignored according to OpenAPI."""

Table = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A value in the document, with its JSON pointer."""

    value: Any
    pointer: str = "#"

    def at(self, *keys: str | int) -> "Place":
        """Return the place of a nested value. If it does not exist, the place has the value None."""
        value, pointer = self.value, self.pointer
        for key in keys:
            pointer += "/" + str(key).replace("~", "~0").replace("/", "~1")
            if isinstance(value, dict):
                value = cast("Table", value).get(cast("str", key))
            elif isinstance(value, list) and isinstance(key, int):
                found = cast("list[Any]", value)
                value = found[key] if key < len(found) else None
            else:
                value = None
        return Place(value, pointer)

    def items(self) -> "Iterator[tuple[str, Place]]":
        """Yield the names and values of an object. Another value has none."""
        value = self.value
        for key in cast("Table", value) if isinstance(value, dict) else ():
            yield str(key), self.at(key)

    def elements(self) -> "Iterator[Place]":
        """Yield the elements of a list. Another value has none."""
        value = self.value
        for index in range(len(cast("list[Any]", value)) if isinstance(value, list) else 0):
            yield self.at(index)

    def text(self, *keys: str) -> str:
        value = self.at(*keys).value
        return value if isinstance(value, str) else ""


class CannotExpress(ValueError):
    """Raised if a manifest cannot express a part of the document, or if that part is wrong."""

    def __init__(self, place: Place, problem: str) -> None:
        super().__init__(f"{place.pointer}: {problem}")
        self.place = place
        self.problem = problem


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    place: Place
    """The operation's own object in the document."""
    shared: Place
    """The object of the path, with the parameters that its operations share."""

    @property
    def key(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def operation_id(self) -> str:
        return self.place.text("operationId")

    @property
    def tags(self) -> list[str]:
        return [each.value for each in self.place.at("tags").elements() if isinstance(each.value, str)]

    def tool_name(self, prefix: str) -> str:
        found = re.sub(r"[^A-Za-z0-9_-]+", "_", f"{prefix}{self.operation_id or self.method + self.path}").strip("_-")
        return (found if found[:1].isalpha() else f"call_{found}")[:64].rstrip("_-")


@dataclass(frozen=True)
class WrittenTool:
    """The manifest of an operation, as text."""

    operation: Operation
    name: str
    effect: str
    text: str
    secrets: tuple[str, ...]
    """The environment variables that hold the secrets for its requests."""
    left_out: tuple[str, ...]
    """Optional parts that the manifest cannot express: the place and the reason of each."""


class OpenApi:
    """A document of version 3.0 or 3.1."""

    def __init__(self, document: Any, address: str = "", *, server: str = "", prefix: str = "") -> None:
        """Take the document as JSON values. Raise CannotExpress if its version is unknown.

        Args:
            address: The URL of the document. Relative addresses of servers are resolved against it.
            server: The server's address. It replaces those in the document.
            prefix: The text with which the names of all tools begin.
        """
        self._document = Place(document)
        self._address = address
        self._server = server
        self._prefix = prefix
        self._steps = 0
        version = self._document.text("openapi")
        if not version.startswith(("3.0.", "3.1.")):
            named = version or self._document.text("swagger") or "no version"
            raise CannotExpress(self._document.at("openapi"), f"{named}: only OpenAPI 3.0 and 3.1 can be read")

    def operations(self) -> Iterator[Operation]:
        for path, place in self._document.at("paths").items():
            shared = self.resolved(place)
            for method in METHODS:
                operation = shared.at(method)
                if isinstance(operation.value, dict):
                    yield Operation(method, path, operation, shared)

    def resolved(self, place: Place) -> Place:
        """Follow references. Raise CannotExpress if one leads out of the document, nowhere, or in a circle."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise CannotExpress(place, "the document is too complex to read")
        for _ in range(_MAX_REFERENCES):
            reference = place.at("$ref").value
            if reference is None:
                return place
            if not isinstance(reference, str) or not reference.startswith("#"):
                raise CannotExpress(place, f"$ref {reference!r} leads out of the document; bundle it into one file")
            target = Place(self._document.value)
            for part in reference.removeprefix("#").removeprefix("/").split("/"):
                key = part.replace("~1", "/").replace("~0", "~")
                target = target.at(int(key) if isinstance(target.value, list) and key.isdecimal() else key)
            if target.value is None:
                raise CannotExpress(place, f"$ref {reference!r} leads nowhere; correct the document")
            place = Place(target.value, target.pointer)
        raise CannotExpress(place, "its references lead in a circle; correct the document")

    def tool(self, operation: Operation, secrets: Mapping[str, str]) -> WrittenTool:
        """Return the manifest of an operation. Raise CannotExpress if it lacks a part that the server requires.

        `secrets` maps security schemes to environment variables. For other schemes, `secret_name` makes up a variable.
        """
        name = operation.tool_name(self._prefix)
        request = _Request(self, operation)
        request.add_parameters()
        request.add_body()
        request.add_security(secrets)
        request.add_accept()
        text = request.text(name, self._base_url(operation), one_line(self._document.text("info", "title"))[:100])
        _require_valid(text, operation.place)
        effect = request.effect
        return WrittenTool(operation, name, effect, text, tuple(request.secrets), tuple(request.left_out))

    def security_of(self, operation: Operation) -> Place:
        own = operation.place.at("security")
        return own if own.value is not None else self._document.at("security")

    def security_scheme(self, name: str) -> Place:
        return self.resolved(self._document.at("components", "securitySchemes", name))

    def secret_name(self, scheme: str) -> str:
        """Return an environment variable for a scheme, named after the document's title and the scheme."""
        words = f"{self._document.text('info', 'title')}_{scheme}"
        found = re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_")
        return found if found[:1].isalpha() else f"API_{found}"

    def _base_url(self, operation: Operation) -> str:
        if self._server:
            return self._server.rstrip("/")
        places = [each.at("servers", 0) for each in (operation.place, operation.shared, self._document)]
        server = next((each for each in places if isinstance(each.value, dict)), Place({"url": "/"}, "#/servers"))
        url = server.text("url")
        for name, variable in server.at("variables").items():
            url = url.replace(f"{{{name}}}", str(variable.at("default").value))
        url = urljoin(self._address, url) if self._address else url
        if not re.match(r"https?://[^/{}]+[^{}]*\Z", url):
            raise CannotExpress(server, f"{url!r} is no complete address; pass --server URL")
        return url.rstrip("/")


def _require_valid(text: str, place: Place) -> None:
    """Raise CannotExpress if the text of a manifest has a flaw."""
    try:
        manifest = Manifest.model_validate(read_toml(text), extra="forbid")
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        raise CannotExpress(place, f"{'.'.join(map(str, details['loc']))}: {details['msg']}") from None
    for flaw in manifest_flaws(manifest):
        raise CannotExpress(place, f"{'.'.join(flaw.key)}: {flaw.problem}; {flaw.remedy}")


class _SchemeHeader(NamedTuple):
    name: str
    value: str
    """The value in a manifest, with a placeholder for the secret."""
    variable: str
    """The environment variable with the secret."""


class _ObjectSchema(NamedTuple):
    """The properties of an object, and the names of the required ones. Both include those of `allOf`."""

    properties: dict[str, Place]
    required: set[str]


class _Request:
    """Builds the arguments and the request of one operation's manifest, part by part."""

    def __init__(self, document: OpenApi, operation: Operation) -> None:
        self._document = document
        self._operation = operation
        self._arguments: Table = {}
        self._path: dict[str, str] = {}
        self._query: dict[str, str] = {}
        self._headers: dict[str, str] = {}
        self._body: Table = {}
        self.secrets: list[str] = []
        self.left_out: list[str] = []

    @property
    def effect(self) -> str:
        return _EFFECTS.get(self._operation.method, "irreversible")

    def add_parameters(self) -> None:
        found: dict[tuple[str, str], Place] = {}
        for source in (self._operation.shared, self._operation.place):
            for each in source.at("parameters").elements():
                parameter = self._document.resolved(each)
                found[parameter.text("name"), parameter.text("in")] = parameter
        for (name, where), parameter in found.items():
            if where == "header" and name.lower() in _IGNORED_HEADERS:
                continue
            is_required = parameter.at("required").value is True or where == "path"
            with self._optional(parameter, is_required):
                self._add_parameter(name, where, parameter, is_required)

    def _add_parameter(self, name: str, where: str, parameter: Place, is_required: bool) -> None:
        table = {"path": self._path, "query": self._query, "header": self._headers}.get(where)
        if table is None:
            raise CannotExpress(parameter, f"parameters in {where or 'no place'} cannot be sent")
        if parameter.at("content").value is not None:
            raise CannotExpress(parameter.at("content"), "a parameter with a media type cannot be sent")
        usual = "form" if where == "query" else "simple"
        if (style := parameter.text("style") or usual) != usual:
            raise CannotExpress(parameter.at("style"), f"style {style!r} cannot be sent, only {usual!r}")
        argument = self._argument(parameter.at("schema"))
        if argument["type"] == "array" and (where != "query" or parameter.at("explode").value is False):
            raise CannotExpress(parameter, "a list can only be sent as a repeated name in the query")
        argument["description"] = parameter.text("description") or argument.get("description", "")
        table[name] = self._slot(name, argument, is_required, where)

    def add_body(self) -> None:
        body = self._document.resolved(self._operation.place.at("requestBody"))
        if body.value is None:
            return
        with self._optional(body, body.at("required").value is True):
            if self.effect == "read_only":
                raise CannotExpress(body, "a GET request has no body")
            media = {name.partition(";")[0].strip().lower(): each for name, each in body.at("content").items()}
            json_type = next((name for name in media if re.fullmatch(r"application/(.+\+)?json", name)), "")
            if json_type:
                self._body["json"] = self._fields(media[json_type].at("schema"), "", is_nested=True)
                if json_type != "application/json":
                    self._headers["Content-Type"] = json_type
            elif form := media.get("application/x-www-form-urlencoded"):
                self._body["form"] = self._fields(form.at("schema"), "", is_nested=False)
            elif text := media.get("text/plain"):
                argument = self._argument(text.at("schema"), multiline=True)
                self._body["text"] = self._slot("body", argument, True, "body")
            else:
                kinds = ", ".join(media) or "no media type"
                raise CannotExpress(body.at("content"), f"a body of {kinds} cannot be sent, only JSON, forms and text")

    def _fields(self, schema: Place, prefix: str, *, is_nested: bool) -> Table:
        """Return the table of a body, with a placeholder for each property of an object's schema."""
        properties, required = self._object_schema(schema)
        if not properties:
            raise CannotExpress(schema, "only an object with named properties can be sent")
        if prefix.count("/") >= _MAX_DEPTH:
            raise CannotExpress(schema, "it is nested too deeply")
        found: Table = {}
        for name, each in properties.items():
            prop = self._plain(each)
            if prop.at("readOnly").value is True:
                continue
            is_required = name in required
            with self._optional(each, is_required):
                if _schema_type(prop) != "object":
                    argument = self._argument(prop, multiline=True)
                    found[name] = self._slot(f"{prefix}{name}".replace("/", "_"), argument, is_required, "body")
                elif is_nested and is_required:
                    found[name] = self._fields(prop, f"{prefix}{name}/", is_nested=True)
                else:
                    raise CannotExpress(prop, "an object that is optional or in a form cannot be sent")
        return found

    def _object_schema(self, schema: Place, depth: int = 0) -> _ObjectSchema:
        schema = self._plain(schema)
        if depth > _MAX_DEPTH:
            raise CannotExpress(schema, "it is nested too deeply")
        for word in ("oneOf", "anyOf", "not"):
            if schema.at(word).value is not None:
                raise CannotExpress(schema.at(word), "alternatives cannot be expressed")
        properties = dict(schema.at("properties").items())
        required = {each.value for each in schema.at("required").elements() if isinstance(each.value, str)}
        for part in schema.at("allOf").elements():
            inner = self._object_schema(part, depth + 1)
            properties, required = inner.properties | properties, required | inner.required
        return _ObjectSchema(properties, required)

    def _plain(self, schema: Place) -> Place:
        """Return a schema without references, and with a single alternative merged in. `null` does not count as one."""
        for _ in range(_MAX_DEPTH):
            schema = self._document.resolved(schema)
            parts = [each for word in ("oneOf", "anyOf", "allOf") for each in schema.at(word).elements()]
            parts = [part for part in map(self._document.resolved, parts) if part.at("type").value != "null"]
            if len(parts) != 1 or schema.at("properties").value is not None:
                return schema
            only = parts[0]
            if not isinstance(only.value, dict) or not isinstance(schema.value, dict):
                return schema
            own = cast("Table", schema.value)
            kept = {key: value for key, value in own.items() if key not in ("oneOf", "anyOf", "allOf")}
            schema = Place({**kept, **cast("Table", only.value)}, only.pointer)
        raise CannotExpress(schema, "it is nested too deeply")

    def _argument(self, schema: Place, *, multiline: bool = False) -> Table:
        """Return the keys of the argument for a schema. Raise CannotExpress if no type of arguments fits the schema."""
        schema = self._plain(schema)
        kind = _schema_type(schema)
        values = [each.value for each in schema.at("enum").elements() if each.value is not None]
        if (const := schema.at("const").value) is not None:
            values = [const]
        found: Table = {"type": kind}
        if kind == "array":
            items = self._argument(schema.at("items"))
            if items["type"] == "array":
                raise CannotExpress(schema.at("items"), "a list of lists cannot be sent")
            items.pop("description", None)
            found |= {"items": items, **_bounds(schema, "minItems", "maxItems")}
        elif kind == "string" and values:
            found = {"type": "enum", "allowed": values}
        elif kind == "string":
            found |= _bounds(schema, "minLength", "maxLength") | self._pattern(schema)
            if multiline and "pattern" not in found:
                found["multiline"] = True
        elif kind in ("integer", "number"):
            found |= {"allowed": values} if values else _number_bounds(schema, kind)
        elif kind != "boolean":
            raise CannotExpress(schema, f"a value of type {kind or 'any'} cannot be sent here")
        notes = [schema.text("description"), f"Format: {schema.text('format')}." if schema.text("format") else ""]
        if (default := schema.at("default").value) is not None:
            notes.append(f"Default: {json.dumps(default, ensure_ascii=False)}.")
        return {**found, "description": " ".join(note for note in notes if note)}

    def _pattern(self, schema: Place) -> Table:
        """Return the key `pattern`, which must match the whole value. In OpenAPI a match of a part is enough."""
        if not (source := schema.text("pattern")):
            return {}
        is_whole = source.startswith("^") and re.search(r"(?<!\\)\$\Z", source) and "|" not in source
        pattern = source[1:-1] if is_whole else f".*(?:{source}).*"
        try:
            LinearPattern(pattern)
        except ValueError:
            why = "the pattern is none of RE2, so only the server checks it"
            self.left_out.append(f"{schema.at('pattern').pointer}: {why}")
            return {}
        return {"pattern": pattern}

    def _slot(self, name: str, argument: Table, is_required: bool, where: str) -> str:
        """Add an argument and return its placeholder. If its name is taken, append where it is sent: `_query`."""
        own = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or where
        own = (own if not own[0].isdigit() else f"_{own}")[:56]
        if own in self._arguments:
            own = f"{own}_{where}"
        if own in self._arguments:
            raise CannotExpress(self._operation.place, f"two arguments would be called {own!r}")
        description = clip(one_line(str(argument.pop("description", ""))), _MAX_ARGUMENT_DESCRIPTION_CHARS)
        self._arguments[own] = {
            **argument,
            **({"description": description} if description else {}),
            **({} if is_required else {"required": False}),
        }
        return f"{{{own}}}"

    def add_security(self, secrets: Mapping[str, str]) -> None:
        """Add the headers of the first security requirement whose schemes can all be sent."""
        security = self._document.security_of(self._operation)
        refused: CannotExpress | None = None
        for requirement in security.elements():
            try:
                headers = [self._secret_header(name, place, secrets) for name, place in requirement.items()]
            except CannotExpress as error:
                refused = refused or error
                continue
            by_name = {header.name: header for header in headers}
            self._headers |= {name: header.value for name, header in by_name.items()}
            self.secrets += [header.variable for header in by_name.values()]
            return
        if refused:
            raise refused

    def _secret_header(self, name: str, place: Place, secrets: Mapping[str, str]) -> _SchemeHeader:
        scheme = self._document.security_scheme(name)
        variable = secrets.get(name) or self._document.secret_name(name)
        secret = f"{{secret:{variable}}}"
        match scheme.text("type"), scheme.text("in") or scheme.text("scheme").lower():
            case "apiKey", "header":
                return _SchemeHeader(scheme.text("name"), secret, variable)
            case "apiKey", "cookie":
                return _SchemeHeader("Cookie", f"{scheme.text('name')}={secret}", variable)
            case "http", "basic":
                return _SchemeHeader("Authorization", f"Basic {secret}", variable)
            case ("http", "bearer") | ("oauth2", _) | ("openIdConnect", _):
                return _SchemeHeader("Authorization", f"Bearer {secret}", variable)
            case kind, way:
                what = " ".join(part for part in (kind, way) if part) or f"{name!r}, which is not described,"
                raise CannotExpress(
                    place, f"the security scheme {what} cannot be used; a secret can only be in a header"
                )

    def add_accept(self) -> None:
        """Ask for JSON if an answer can be JSON."""
        for status, response in self._operation.place.at("responses").items():
            media = self._document.resolved(response).at("content", "application/json").value
            if status.startswith("2") and media is not None:
                self._headers.setdefault("Accept", "application/json")

    @contextmanager
    def _optional(self, place: Place, is_required: bool) -> Generator[None]:
        """Leave out the part that is added in this context if it cannot be expressed, unless it is required."""
        arguments, headers = dict(self._arguments), dict(self._headers)
        try:
            yield
        except CannotExpress as error:
            if is_required:
                raise
            self._arguments, self._headers = arguments, headers
            self.left_out.append(str(error))

    def text(self, name: str, base_url: str, title: str) -> str:
        operation = self._operation
        summary, description = operation.place.text("summary"), operation.place.text("description")
        about = "\n\n".join(dict.fromkeys(part.strip() for part in (summary, description) if part.strip()))
        http: Table = {"method": operation.method.upper(), "url": base_url + self._url_path()}
        http |= {"query": self._query} if self._query else {}
        http |= {"headers": self._headers} if self._headers else {}
        http |= self._body
        lines = [
            f"# {operation.key} of {title}, from its OpenAPI document. docs/tool-manifests.md describes all keys.",
            f"name = {_toml(name)}",
            f"description = {_toml(clip(about, _MAX_DESCRIPTION_CHARS) or operation.key)}",
            f"effect = {_toml(self.effect)}",
        ]
        for own, argument in self._arguments.items():
            lines += ["", f"[arguments.{own}]", *(f"{key} = {_toml(value)}" for key, value in argument.items())]
        lines += ["", "[http]", *(f"{key} = {_toml(value)}" for key, value in http.items())]
        return clean_text("\n".join(lines)) + "\n"

    def _url_path(self) -> str:
        def slot(found: re.Match[str]) -> str:
            if found[1] not in self._path:
                raise CannotExpress(
                    self._operation.place, f"the path's {found[0]} is no parameter; correct the document"
                )
            return self._path[found[1]]

        return re.sub(r"\{([^{}]*)\}", slot, self._operation.path)


def _schema_type(schema: Place) -> str:
    """Return the type of a schema apart from `null`, or "" if it is unknown or there are several."""
    kind = schema.at("type").value
    if isinstance(kind, list):
        kinds = [each for each in cast("list[Any]", kind) if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else ""
    if isinstance(kind, str):
        return kind
    if schema.at("properties").value or schema.at("allOf").value:
        return "object"
    values = [each.value for each in schema.at("enum").elements()]
    return "string" if values and all(isinstance(each, str) for each in values) else ""


def _bounds(schema: Place, least: str, most: str) -> Table:
    found = {"min": schema.at(least).value, "max": schema.at(most).value}
    return {key: value for key, value in found.items() if isinstance(value, int) and (key == "max" or value > 0)}


def _number_bounds(schema: Place, kind: str) -> Table:
    """Return the bounds of a number. For integers, they include exclusive ones: `true` in 3.0, a number in 3.1."""
    found: Table = {}
    keywords = (("min", "minimum", "exclusiveMinimum", 1), ("max", "maximum", "exclusiveMaximum", -1))
    for key, inclusive_keyword, exclusive_keyword, step in keywords:
        bound, exclusive = schema.at(inclusive_keyword).value, schema.at(exclusive_keyword).value
        if kind == "integer" and exclusive is True and isinstance(bound, int):
            bound += step
        elif kind == "integer" and isinstance(exclusive, int) and not isinstance(exclusive, bool):
            bound = exclusive + step
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            found[key] = bound
    return found


def _toml(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, dict):
        items = cast("Table", value).items()
        named = ((key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key), each) for key, each in items)
        inside = ", ".join(f"{key} = {_toml(each)}" for key, each in named)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in cast('list[Any]', value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
