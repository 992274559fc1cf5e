import ssl
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.web.config_file import ClientAuth, WebConfigError, read_web_config

HASH = "$2y$04$" + "a" * 53
TLS = "tls_server_config:\n  cert_file: c.pem\n  key_file: /k.pem\n"


def read(directory: Path, text: str | bytes):
    origin = directory / "web.yml"
    origin.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_web_config(origin)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "basic_auth_users:\n", "tls_server_config: {}\n", "---\n"])
def test_a_file_that_sets_nothing_sets_nothing(tmp_path, text):
    config = read(tmp_path, text)
    assert (config.tls, config.headers, dict(config.users)) == (None, (), {})


def test_a_whole_file(tmp_path):
    config = read(
        tmp_path,
        TLS
        + "  client_auth_type: RequireAndVerifyClientCert\n"
        + "  client_ca_file: ca/ca.pem\n"
        + "  client_allowed_sans: [prometheus.local, 10.0.0.1]\n"
        + "  min_version: TLS13\n"
        + "  max_version: TLS13\n"
        + "  prefer_server_cipher_suites: false\n"
        + "  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,\n"
        + "    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]\n"
        + "http_server_config:\n  http2: true\n  headers:\n    X-Frame-Options: deny\n    X-XSS-Protection: ''\n"
        + "    Content-Security-Policy: default-src 'self'\n"
        + f"basic_auth_users:\n  alice: {HASH}\n  123: '{HASH}'\n",
    )
    tls = config.tls
    assert tls is not None
    assert (tls.cert_file, tls.key_file, tls.client_ca_file) == (
        tmp_path / "c.pem",
        Path("/k.pem"),
        tmp_path / "ca/ca.pem",
    )
    assert tls.client_auth is ClientAuth.REQUIRED
    assert tls.client_allowed_sans == {"prometheus.local", "10.0.0.1"}
    assert tls.min_version is tls.max_version is ssl.TLSVersion.TLSv1_3
    assert not tls.prefer_server_ciphers
    assert tls.ciphers == ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-SHA", "ECDHE-ECDSA-CHACHA20-POLY1305")
    assert config.headers == (("X-Frame-Options", "deny"), ("Content-Security-Policy", "default-src 'self'"))
    assert dict(config.users) == {"alice": HASH.encode(), "123": HASH.encode()}


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("tls_config: {}\n", 1, "tls_config", "unknown key; known here: basic_auth_users"),
        (TLS + "  cert_fle: x\n", 4, "tls_server_config.cert_fle", "unknown key"),
        ("http_server_config:\n  headers:\n    Server: x\n", 3, "http_server_config.headers.Server", "unknown key"),
        (TLS + "  key_file: other\n", 4, "tls_server_config.key_file", "given twice"),
        ("tls_server_config:\n  key_file: k\n", 2, "tls_server_config.cert_file", "is missing"),
        ("tls_server_config:\n  cert_file: c\n", 2, "tls_server_config.key_file", "is missing"),
        (TLS + "  cert: inline\n", 4, "tls_server_config.cert", "cert_file"),
        (TLS + "  key: inline\n", 4, "tls_server_config.key", "key_file"),
        (TLS + "  client_ca: inline\n", 4, "tls_server_config.client_ca", "client_ca_file"),
        (TLS + "  curve_preferences: [X25519]\n", 4, "tls_server_config.curve_preferences", "remove it"),
        (TLS + "  client_auth_type: RequestClientCert\n", 4, "tls_server_config.client_auth_type", "not supported"),
        (TLS + "  client_auth_type: RequireAnyClientCert\n", 4, "tls_server_config.client_auth_type", "not supported"),
        (TLS + "  client_auth_type: Maybe\n", 4, "tls_server_config.client_auth_type", "NoClientCert"),
        (TLS + "  client_auth_type: VerifyClientCertIfGiven\n", 2, "tls_server_config.client_ca_file", "is missing"),
        (TLS + "  client_ca_file: ca\n", 4, "tls_server_config.client_ca_file", "set client_auth_type"),
        (TLS + "  client_allowed_sans: [a]\n", 4, "tls_server_config.client_allowed_sans", "set client_auth_type"),
        (
            TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca\n  client_allowed_sans: []\n",
            6,
            "tls_server_config.client_allowed_sans",
            "would refuse everybody",
        ),
        (TLS + "  client_allowed_sans: a\n", 4, "tls_server_config.client_allowed_sans", "must be a list"),
        (TLS + "  min_version: TLS10\n", 4, "tls_server_config.min_version", "use TLS12 or TLS13"),
        (TLS + "  max_version: SSL3\n", 4, "tls_server_config.max_version", "neither TLS12 nor TLS13"),
        (TLS + "  min_version: TLS13\n  max_version: TLS12\n", 4, "tls_server_config.min_version", "above"),
        (TLS + "  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n", 4, "tls_server_config.cipher_suites", "RC4"),
        (TLS + "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", 4, "tls_server_config.cipher_suites", "TLS 1.3"),
        (
            TLS + "  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA384]\n",
            4,
            "tls_server_config.cipher_suites",
            "not a supported suite",
        ),
        (
            TLS + "  prefer_server_cipher_suites: 2\n",
            4,
            "tls_server_config.prefer_server_cipher_suites",
            "true or false",
        ),
        ("http_server_config:\n  http2: maybe\n", 2, "http_server_config.http2", "true or false"),
        (
            "http_server_config:\n  headers:\n    X-Frame-Options: allow\n",
            3,
            "http_server_config.headers.X-Frame-Options",
            "use deny or sameorigin",
        ),
        (
            'http_server_config:\n  headers:\n    X-XSS-Protection: "1\\r\\nSet-Cookie: a"\n',
            3,
            "http_server_config.headers.X-XSS-Protection",
            "printable ASCII",
        ),
        ("\nbasic_auth_users:\n  bob: secret\n", 3, "basic_auth_users.bob", "htpasswd"),
        (f"basic_auth_users:\n  bob: {HASH[:-1]}\n", 2, "basic_auth_users.bob", "bcrypt"),
        (f"basic_auth_users:\n  bob: $2y$03${'a' * 53}\n", 2, "basic_auth_users.bob", "bcrypt"),
        (f"basic_auth_users:\n  'b:b': {HASH}\n", 2, "basic_auth_users.b:b", "cannot hold ':'"),
        ("basic_auth_users: [a]\n", 1, "basic_auth_users", "must be a mapping"),
        ("basic_auth_users:\n  [a]: b\n", 2, "basic_auth_users", "not plain text"),
        ("basic_auth_users:\n  a: [b]\n", 2, "basic_auth_users.a", "must be one value"),
        ("rate_limit:\n  interval: 1s\n", 1, "rate_limit", "--web.max-connections"),
    ],
)
def test_a_mistake_is_one_line_with_file_line_key_and_advice(tmp_path, text, line, key, says):
    with pytest.raises(WebConfigError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'web.yml'}:{line}: {key}: ")
    assert says in message
    assert "\n" not in message


def test_a_clear_password_never_gets_into_the_message(tmp_path):
    with pytest.raises(WebConfigError) as caught:
        read(tmp_path, "basic_auth_users:\n  bob: hunter2\n")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: [\n", "web.yml:2: is not valid YAML"),
        (b"a: b\n---\nc: d\n", "is not valid YAML"),
        (b"\x00", "is not valid YAML"),
        (b"a: \xff\xfe\xfa", "is not valid YAML"),
        (b"[" * 5000, "nested too deeply"),
        (b"just text", "must be a mapping"),
        (b"a: &x [*x]", "unknown key"),
    ],
)
def test_what_is_no_yaml_is_one_line_with_the_file(tmp_path, text, says):
    with pytest.raises(WebConfigError) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "web.yml") in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line_with_the_file(tmp_path):
    with pytest.raises(WebConfigError, match=r"web\.yml: cannot be read: No such file"):
        read_web_config(tmp_path / "web.yml")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary() | st.text(alphabet="abtls_:-\n []{}&*!'\"#|>").map(str.encode))
def test_every_file_is_a_configuration_or_one_line(tmp_path, text):
    message = ""
    try:
        read(tmp_path, text)
    except WebConfigError as error:
        message = str(error)
    assert "\n" not in message
