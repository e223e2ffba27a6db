"""The AWS_* variables, read in one place and said in the words of each client."""

from __future__ import annotations

import pytest

from ontolake.errors import Invalid
from ontolake.objects.credentials import Credentials
from ontolake.urls import parse

S3, R2 = parse("s3://bucket/p"), parse("r2://bucket/p")
KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
LOCAL = {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9000/", "AWS_ALLOW_HTTP": "true", "AWS_SESSION_TOKEN": "token",
         "AWS_REGION": "eu-west-1"}


def test_the_endpoint_of_s3_wins() -> None:
    found = Credentials.from_env(S3, {**LOCAL, "AWS_ENDPOINT_URL_S3": "https://s3.example.org"})
    assert found.endpoint == "https://s3.example.org"


def test_the_region_has_a_fallback_and_a_default() -> None:
    assert Credentials.from_env(S3, KEYS).region == "us-east-1"
    assert Credentials.from_env(S3, {**KEYS, "AWS_DEFAULT_REGION": "b"}).region == "b"
    assert Credentials.from_env(S3, {**KEYS, "AWS_DEFAULT_REGION": "b", "AWS_REGION": "a"}).region == "a"
    assert Credentials.from_env(R2, {**KEYS, "AWS_ENDPOINT_URL": "https://x.r2.example"}).region == "auto"


def test_an_empty_variable_is_an_unset_one() -> None:
    found = Credentials.from_env(S3, {**KEYS, "AWS_SESSION_TOKEN": "", "AWS_ENDPOINT_URL": ""})
    assert found == Credentials("id", "secret", region="us-east-1")


def test_options_for_obstore() -> None:
    assert Credentials.from_env(S3, LOCAL).obstore("bucket") == {
        "access_key_id": "id", "secret_access_key": "secret", "session_token": "token", "region": "eu-west-1",
        "endpoint": "http://127.0.0.1:9000", "client_options": {"allow_http": True},
    }


def test_options_for_lance() -> None:
    assert Credentials.from_env(S3, LOCAL).lance("bucket") == {
        "aws_access_key_id": "id", "aws_secret_access_key": "secret", "aws_session_token": "token",
        "aws_region": "eu-west-1", "aws_endpoint": "http://127.0.0.1:9000", "allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
    }


def test_options_for_spark() -> None:
    found = Credentials.from_env(S3, LOCAL).spark()
    assert found["spark.hadoop.fs.s3a.access.key"] == "id"
    assert found["spark.hadoop.fs.s3a.session.token"] == "token"
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert found["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert found["spark.hadoop.fs.s3a.aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")


def test_the_bucket_goes_into_the_host_when_not_in_the_path() -> None:
    env = {**KEYS, "AWS_ENDPOINT_URL": "https://s3.example.org", "AWS_S3_FORCE_PATH_STYLE": "false"}
    options = Credentials.from_env(S3, env).obstore("bucket")
    assert options["endpoint"] == "https://bucket.s3.example.org"
    assert options["virtual_hosted_style_request"] is True


@pytest.mark.parametrize("secret", ["secret", "token"])
def test_secrets_are_not_shown(secret: str) -> None:
    assert secret not in repr(Credentials.from_env(S3, LOCAL))


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"AWS_ACCESS_KEY_ID": "id"}, "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_SECRET_ACCESS_KEY": "s"}, "AWS_ACCESS_KEY_ID"),
        ({"AWS_ENDPOINT_URL": "https://x.example"}, "AWS_ACCESS_KEY_ID"),
        ({"AWS_EC2_METADATA_DISABLED": "true"}, "AWS_ACCESS_KEY_ID"),
        ({**KEYS, "AWS_ENDPOINT_URL": "http://x.example"}, "AWS_ALLOW_HTTP"),
        ({**KEYS, "AWS_ENDPOINT_URL": "x.example:9000"}, "x.example:9000"),
        ({**KEYS, "AWS_ENDPOINT_URL": "https://"}, "https://"),
        ({**KEYS, "AWS_ENDPOINT_URL": "https://x.example:port"}, "x.example:port"),
        ({**KEYS, "AWS_ENDPOINT_URL": "https://x y"}, "x y"),
        ({**KEYS, "AWS_ALLOW_HTTP": "perhaps", "AWS_ENDPOINT_URL": "http://x.example"}, "AWS_ALLOW_HTTP"),
        ({**KEYS, "AWS_S3_FORCE_PATH_STYLE": "2"}, "AWS_S3_FORCE_PATH_STYLE"),
    ],
)
def test_what_cannot_work_is_refused_and_named(env: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        Credentials.from_env(S3, env)
    assert said in str(caught.value)


def test_r2_needs_an_endpoint() -> None:
    with pytest.raises(Invalid, match="AWS_ENDPOINT_URL_S3"):
        Credentials.from_env(R2, KEYS)


def test_a_certificate_file_must_be_readable() -> None:
    with pytest.raises(Invalid, match="AWS_CA_BUNDLE"):
        Credentials.from_env(S3, {**KEYS, "AWS_CA_BUNDLE": "/does/not/exist"}).obstore("bucket")
