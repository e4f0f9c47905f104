"""Scenes on nodes: images are what is few or many, and what a cap counts."""

from __future__ import annotations

import numpy as np
import pytest

from headstart import LDA
from headstart.data.scenes import CAMVID
from headstart.deploy.admission import UploadRejected
from headstart.deploy.flower.client import may_send
from headstart.deploy.flower.server import opened
from headstart.deploy.flower.settings import NodeSettings, ServerSettings
from headstart.errors import HeadstartError
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.pipeline.phases import InitHead
from tests.data.test_cells import cells

NODE = NodeSettings(client="a", data="-", folder="-")


def test_nine_images_are_few_however_many_cells_they_have():
    data = cells(1, 12)
    step = steps.measure(LDA())
    for images, refused in ((9, True), (10, False)):
        client = ClientData(data.picked(np.arange(images)))
        if refused:
            with pytest.raises(UploadRejected, match="9 images") as found:
                may_send(step, client, NODE)
            assert found.value.code == "small"
        else:
            may_send(step, client, NODE)


def test_few_test_images_are_not_told_of():
    data = cells(1, 12)
    client = ClientData(data.picked(np.arange(10)), data.picked(np.arange(10, 12)))
    with pytest.raises(UploadRejected, match="2 samples"):
        may_send(steps.confusion(data.names), client, NODE)


def settings(tmp_path, **more):
    classes = tmp_path / "classes.txt"
    classes.write_text("\n".join(CAMVID) + "\n")
    given = {"ledger": str(tmp_path / "ledger"), "output": str(tmp_path / "out"), "dimension": 712}
    given |= {"extractor": "mobilenet_v2", "labels": "text", "class_list": str(classes)}
    return ServerSettings(**{**given, "scenes": "96x64", "samples": 50, **more})


def test_caps_are_images_times_cells(tmp_path):
    asked = settings(tmp_path, caps={"a": 20})
    with opened(asked, InitHead("lda")) as ledger:
        assert ledger.contract.cap("a") == 20 * 12 * 8
        assert ledger.contract.cap("b") == 50 * 12 * 8
        assert ledger.contract.norm is None  # that of whole images says nothing of cells
        assert ledger.contract.extractor["cells"]["classes"] == list(CAMVID)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"scenes": "96"}, "expected width and height, as in 480x360, got '96'"),
        ({"extractor": ""}, "expected an extractor of their cells, got none"),
        ({"class_list": ""}, "expected the agreed classes"),
    ],
)
def test_what_scenes_need_is_asked_for_in_one_line(wrong, said, tmp_path):
    with pytest.raises(HeadstartError, match=said):
        opened(settings(tmp_path, **wrong), InitHead("lda"))
