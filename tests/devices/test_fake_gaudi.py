"""Gaudi's file against a fake of Gaudi's software, for no card is here: which calls are made, and when. Nothing is measured."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from genaccel.devices import hpu


class FakeFusedSDPA:
    """Takes what Intel documents: query, key, value, mask, dropout, causal, scale."""

    @staticmethod
    def apply(query, key, value, mask, dropout, causal, scale):
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale=scale)


@pytest.fixture
def fake_gaudi(monkeypatch):
    """Modules of the names that the real ones have; returns what was called."""
    calls: list[str] = []
    parts = {
        "habana_frameworks": {},
        "habana_frameworks.torch": {},
        "habana_frameworks.torch.core": {"mark_step": lambda: calls.append("mark_step")},
        "habana_frameworks.torch.hpu": {
            "synchronize": lambda: calls.append("synchronize"),
            "get_device_properties": lambda _: SimpleNamespace(total_memory=96_000_000_000),
        },
        "habana_frameworks.torch.hpex": {},
        "habana_frameworks.torch.hpex.kernels": {"FusedSDPA": FakeFusedSDPA},
        "habana_frameworks.torch.distributed": {},
        "habana_frameworks.torch.distributed.hccl": {},
    }
    for name, content in parts.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "unset")
    return calls


def test_lazy_mode_ends_graphs_and_eager_mode_has_none(fake_gaudi):
    hpu.choose_mode("eager")
    assert os.environ["PT_HPU_LAZY_MODE"] == "0"
    hpu.launch_collected()
    assert fake_gaudi == []
    hpu.choose_mode("lazy")
    assert os.environ["PT_HPU_LAZY_MODE"] == "1"
    hpu.launch_collected()
    assert fake_gaudi == ["mark_step"]


def test_time_is_read_when_the_card_is_done(fake_gaudi):
    start = hpu.mark()
    stop = hpu.mark()
    assert fake_gaudi == ["synchronize", "synchronize"]
    assert hpu.seconds_between(start, stop) >= 0


def test_the_fused_kernel_is_causal(fake_gaudi):
    q, k, v = torch.randn(3, 1, 2, 9, 8)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    torch.testing.assert_close(hpu.fused_attention(q, k, v, 0.3, 0.0), expected)


def test_collectives_go_through_hccl_and_memory_is_the_cards(fake_gaudi):
    assert hpu.collective_backend() == "hccl"
    assert hpu.memory_bytes() == 96_000_000_000
    assert hpu.energy_joules() is None
