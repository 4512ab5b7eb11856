#!/usr/bin/env python3
"""An issuer of OAuth tokens for tests: Python's library and the `openssl` program, on loopback, no secrets.

tokens.py --keys FOLDER   makes the keys that are missing there, and jwks.json, with which a broker checks the tokens
tokens.py FOLDER ADDRESS  issues tokens at http://ADDRESS/, 127.0.0.1:9999 say, until it is killed

POST /token, grant `client_credentials` (RFC 6749, 4.4): client `client` with secret `secret`, by Basic authentication or in the form
POST /token, grant `urn:ietf:params:oauth:grant-type:jwt-bearer` (RFC 7523): an assertion signed RS256 with client.key of FOLDER
GET /token?api-version=&resource=&client_id=, header `Metadata: true`: as the metadata service of Azure
POST or GET /expired, /malformed, /stranger: a token that has expired, that is none, that another key has signed
GET /jwks: the keys

Tokens are JWTs signed RS256, issuer `https://tokens.test`, audience `milena`, subject the client's name, valid for $TOKEN_SECONDS, 300 by default.
"""

import base64
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid

ISSUER, AUDIENCE, KEY_ID = "https://tokens.test", "milena", "tests"
CLIENT, SECRET, SCOPE = "client", "secret", "records"
PASSPHRASE = "for-tests-alone"
LIFE_SECONDS = int(os.environ.get("TOKEN_SECONDS", "300"))
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
IMDS_WANTS = ("api-version", "resource", "client_id")
BODY_BYTES_MAX = 65536


def openssl(*arguments, stdin=b""):
    return subprocess.run(["openssl", *map(str, arguments)], input=stdin, capture_output=True, check=True).stdout


def make_keys(folder):
    """signing.key and stranger.key sign tokens, the second one unknown to the broker; client.key signs a client's assertions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("signing", "stranger", "client"):
        key = folder / f"{name}.key"
        if not key.exists():
            openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key)
    openssl("pkey", "-in", folder / "client.key", "-pubout", "-out", folder / "client.pub")
    openssl("pkey", "-in", folder / "client.key", "-aes256", "-passout", f"pass:{PASSPHRASE}", "-out", folder / "client-encrypted.key")
    (folder / "client-password").write_text(PASSPHRASE)
    modulus = openssl("rsa", "-in", folder / "signing.key", "-noout", "-modulus").decode().strip().removeprefix("Modulus=")
    # The exponent that openssl takes when nothing is said: 65537.
    key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, "n": url64(bytes.fromhex(modulus)), "e": url64(b"\x01\x00\x01")}
    (folder / "jwks.json").write_text(json.dumps({"keys": [key]}))


def url64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_url64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def signed(key, subject, life):
    """A JWT (RFC 7519) that is valid for so many seconds, or has expired so many ago."""
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "scope": SCOPE, "iat": min(now, now + life - 60), "exp": now + life, "jti": str(uuid.uuid4())}
    head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
    text = f"{url64(json.dumps(head).encode())}.{url64(json.dumps(claims).encode())}"
    return f"{text}.{url64(openssl('dgst', '-sha256', '-sign', key, stdin=text.encode()))}"


def asserted(folder, assertion):
    """The subject of an assertion that client.key has signed and that is valid now, else None."""
    try:
        text, _, signature = assertion.rpartition(".")
        head, claims = (json.loads(from_url64(part)) for part in text.split("."))
        with tempfile.NamedTemporaryFile() as file:
            file.write(from_url64(signature))
            file.flush()
            openssl("dgst", "-sha256", "-verify", folder / "client.pub", "-signature", file.name, stdin=text.encode())
        return claims["sub"] if head["alg"] == "RS256" and claims["exp"] > time.time() else None
    except (ValueError, KeyError, TypeError, subprocess.CalledProcessError):
        return None


class Issuer(http.server.BaseHTTPRequestHandler):
    folder: pathlib.Path
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        whole = self.headers.get("Metadata") == "true" and all(asked.get(name) for name in IMDS_WANTS)
        if urllib.parse.urlsplit(self.path).path == "/jwks":
            self.answer(200, json.loads((self.folder / "jwks.json").read_text()))
        else:
            self.give(asked.get("client_id") if whole else None)

    def do_POST(self):
        length = int(self.headers.get("Content-Length", "0"))
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            self.answer(413, {"error": "invalid_request"})
            return
        form = dict(urllib.parse.parse_qsl(self.rfile.read(length).decode(errors="replace")))
        if form.get("scope", SCOPE) != SCOPE:
            self.answer(400, {"error": "invalid_scope"})
        elif form.get("grant_type") == "client_credentials":
            self.give(self.client(form))
        elif form.get("grant_type") == JWT_BEARER:
            self.give(asserted(self.folder, form.get("assertion", "")))
        else:
            self.answer(400, {"error": "unsupported_grant_type"})

    def client(self, form):
        """The client's name when its secret is right, else None."""
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        said = (form.get("client_id"), form.get("client_secret"))
        if kind == "Basic":
            name, _, secret = base64.b64decode(encoded).decode().partition(":")
            said = (urllib.parse.unquote_plus(name), urllib.parse.unquote_plus(secret))
        return CLIENT if said == (CLIENT, SECRET) else None

    def give(self, subject):
        """Answers with the token that the path stands for."""
        key, tokens = self.folder / "signing.key", {
            "/token": lambda: signed(key, subject, LIFE_SECONDS),
            "/expired": lambda: signed(key, subject, -600),
            "/malformed": lambda: "this.is-no-token",
            "/stranger": lambda: signed(self.folder / "stranger.key", subject, LIFE_SECONDS),
        }
        path = urllib.parse.urlsplit(self.path).path
        if path not in tokens:
            self.answer(404, {"error": "invalid_request"})
        elif subject is None:
            self.answer(401, {"error": "invalid_client"})
        else:
            self.answer(200, {"access_token": tokens[path](), "token_type": "Bearer", "expires_in": LIFE_SECONDS, "scope": SCOPE})

    def answer(self, status, said):
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    if sys.argv[1] == "--keys":
        make_keys(pathlib.Path(sys.argv[2]))
        return
    Issuer.folder = pathlib.Path(sys.argv[1])
    host, port = sys.argv[2].split(":")
    http.server.ThreadingHTTPServer((host, int(port)), Issuer).serve_forever()


if __name__ == "__main__":
    main()
