"""Questions and answers arrive as they were written, and whatever else comes is refused."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart import WireError
from headstart.deploy.flower.messages import Question, Reply
from headstart.deploy.nodes import LONGEST, ClientFailure
from headstart.federation.protocol import Step

ARRAYS = st.dictionaries(
    st.text("abc/", min_size=1, max_size=4),
    st.sampled_from(
        [np.arange(6.0).reshape(2, 3), np.array(["a", "ü"]), np.zeros((0, 2)), np.float32(2)[None]]
    ),
    max_size=3,
)


@given(ARRAYS, st.text(max_size=20), st.none() | st.dictionaries(st.text(), st.integers()))
def test_questions_arrive_as_they_were_asked(arrays, training, news):
    step = Step("measure", {"head": "fed3r", "n": [1, 2.5]})
    asked = Question(step, arrays, "int8", training, 7, 5, news, "nonce")
    heard = Question.from_content(asked.to_content())
    assert {**vars(heard), "broadcast": 0} == {**vars(asked), "broadcast": 0}
    assert heard.broadcast.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(heard.broadcast[name], array)
        assert heard.broadcast[name].dtype == array.dtype


@given(st.text(max_size=20), st.binary(max_size=50), st.text(max_size=20))
def test_answers_arrive_as_they_were_given(client, payload, text):
    given_ = Reply(client, payload, {"name": "x"}, "small", text, "nonce")
    assert Reply.from_content(given_.to_content(), 50) == given_


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["client", "code", "text", "extractor", "nonce"]), inner
            )
        ),
    )
)
def test_whatever_a_client_says_is_an_answer_or_refused(about):
    record = ConfigRecord({"json": json.dumps(about)})
    array = Array("uint8", (1,), "headstart.wire", b"x")
    for content in (
        RecordDict({"about": record, "arrays": ArrayRecord({"upload": array})}),
        RecordDict({"about": record}),
        RecordDict({"arrays": ArrayRecord({"upload": array})}),
        RecordDict(
            {"about": ConfigRecord({"json": json.dumps(about)[:-1]}), "arrays": ArrayRecord()}
        ),
    ):
        with suppress(WireError):
            assert isinstance(Reply.from_content(content, 10).client, str)


@pytest.mark.parametrize("value", ["\ud800", float("nan")])
@pytest.mark.parametrize("key", ["client", "code", "text", "nonce", "extractor"])
def test_what_no_file_can_hold_is_no_answer(key, value):
    about = {"client": "a", "code": "", "text": "", "nonce": "", "extractor": None}
    about[key] = {"name": [value]} if key == "extractor" else value
    array = Array("uint8", (1,), "headstart.wire", b"x")
    content = RecordDict(
        {
            "about": ConfigRecord({"json": json.dumps(about)}),
            "arrays": ArrayRecord({"upload": array}),
        }
    )
    with pytest.raises(WireError) as caught:
        Reply.from_content(content, 10)
    assert caught.value.code == "malformed"


@given(st.text(st.characters(codec=None), max_size=20), st.text(st.characters(codec=None)))
def test_whatever_the_failure_its_words_are_one_line_of_a_log(code, text):
    failure = ClientFailure("a", code, text)
    assert (failure.code + failure.text).isprintable()
    assert ClientFailure("a", failure.code, failure.text) == failure
    if (code + text).isprintable():
        assert (failure.code, failure.text) == (code, text)


@given(st.text(st.characters(codec=None), min_size=LONGEST - 5, max_size=20 * LONGEST))
def test_a_line_about_a_failure_is_never_long(text):
    failure = ClientFailure("a", "failed", text)
    assert len(failure.text) <= LONGEST
    assert failure.text.isprintable()


def test_an_upload_beyond_the_limit_is_refused():
    with pytest.raises(WireError, match="at most 10 bytes, got 11"):
        Reply.from_content(Reply("a", b"x" * 11).to_content(), 10)
