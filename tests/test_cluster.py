"""Clusters: what their links carry follows from ports and bits; what is wrong in public catalogues is refused."""

from __future__ import annotations

from importlib import resources

import pytest

from genaccel import hardware
from genaccel.errors import UserError
from genaccel.hardware import accelerators, clusters, find_cluster


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The cluster of a catalogue's file with something replaced, from a folder of one's own."""
    folder = tmp_path / "clusters"
    folder.mkdir()

    def read(name, old="", new=""):
        text = resources.files("genaccel").joinpath(f"catalogue/clusters/{name}.toml").read_text()
        assert old in text, f"the catalogue's {name} has changed"
        (folder / "x.toml").write_text(text.replace(old, new, 1).replace(f'name = "{name}"', 'name = "mine"'))
        monkeypatch.setenv(hardware.USER_FOLDER, str(tmp_path))
        hardware.clusters.cache_clear()
        return find_cluster("mine")

    yield read
    monkeypatch.undo()
    hardware.clusters.cache_clear()


PORTS = 'inter_node = { value = 200, unit = "Gb/s", technology = "slingshot-11", direction = "one", per = "link"'


@pytest.mark.parametrize(
    ("cluster", "old", "new", "reason"),
    [
        # 200 GB/s that are 200 Gb/s, as in a public catalogue.
        ("perlmutter", PORTS, PORTS.replace("Gb/s", "GB/s"), "Bits entered as bytes?"),
        ("perlmutter", PORTS, PORTS.replace("200", "400"), "Both directions together?"),
        ("perlmutter", PORTS, PORTS.replace('"link"', '"card"').replace("200", "800"), "0?00 GB/s in one direction"),
        ("perlmutter", ', direction = "one"', "", "no direction"),
        ("perlmutter", ', unit = "GB"', "", "no unit"),
        ("perlmutter", "links_per_node = 4, ", "", "does not say how many links"),
        ("perlmutter", "links_per_node = 4, ", "links_per_node = 4, links_per_card = 1, ", "Give one of them"),
        ("perlmutter", 'accelerator = "a100-40gb"', 'accelerator = "a100-40g"', "no accelerator 'a100-40g'. .Did you"),
        ("perlmutter", "cards_per_node = 4", "cards_per_node = 0", "0 cards a node"),
        ("perlmutter", 'unit = "GB", per = "node"', 'unit = "GB", per = "card"', "a figure of a node"),
        ("perlmutter", 'source = "nersc"', 'source = "nercs"', "no source 'nercs'"),
        ("aws-p5", 'unit = "USD/h", per = "card"', 'unit = "USD/h", per = "cluster"', "Give it per card or per node"),
        ("aws-p5", 'unit = "USD/h"', 'unit = "W"', "which is no price"),
        ("gaudi2-node", 'technology = "roce-100g"', 'technology = "roce-200g"', "3 x roce-200g is 75 GB/s"),
    ],
)
def test_a_wrong_figure_is_refused_with_its_reason(read, cluster, old, new, reason):
    with pytest.raises(UserError, match=reason) as caught:
        read(cluster, old, new)
    assert "x.toml" in caught.value.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        (PORTS, PORTS.replace("200", "25").replace("Gb/s", "GB/s")),
        (PORTS, PORTS.replace("200", "100").replace("Gb/s", "GB/s").replace('"link"', '"node"')),
        (PORTS, PORTS.replace("200", "400").replace('"one"', '"both"')),
        (PORTS, PORTS.replace("200", "25").replace("Gb/s", "GB/s").replace('"link"', '"card"')),
    ],
)
def test_a_rate_in_another_form_is_the_same(read, old, new):
    """Four ports of 200 Gb/s for four cards: 25 GB/s a card and direction."""
    assert read("perlmutter", old, new).inter_node_bytes_per_second_per_card == 25e9


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        # GB/s, one card, one direction, by hand: NVLink generations; ports of 100, 200 and 400 Gb/s.
        ("perlmutter", 12 * 25, 200 / 8),
        ("expanse-v100", 6 * 25, 100 / 8 / 4),
        ("voyager", 7 * 100 / 8, 3 * 100 / 8),
        ("gaudi2-node", 21 * 100 / 8, 3 * 100 / 8),
        ("gaudi3-node", 21 * 200 / 8, 3 * 200 / 8),
        ("dgx-h100", 18 * 25, 400 / 8),
        ("aws-p5", 18 * 25, 32 * 100 / 8 / 8),
        ("aws-dl1", 7 * 100 / 8, 4 * 100 / 8 / 8),
    ],
)
def test_links_by_hand(name, inside, outside):
    cluster = find_cluster(name)
    assert cluster.intra_node_bytes_per_second_per_card == inside * 1e9
    assert cluster.inter_node_bytes_per_second_per_card == outside * 1e9


def test_every_cluster_has_a_card_and_every_number_its_provenance():
    for cluster in clusters().values():
        assert cluster.card is accelerators()[cluster.accelerator]
        assert cluster.source
        for name, figure in cluster.figures.items():
            assert figure.value > 0, (cluster.name, name)
            assert figure.source, (cluster.name, name)
            assert figure.date[:2] == "20", (cluster.name, name)
        assert "price" in cluster.figures or "price" in cluster.absent
    assert find_cluster("aws-p5").dollars_per_card_hour == 4.916
    assert find_cluster("perlmutter").dollars_per_card_hour is None


def test_an_unknown_cluster_offers_the_nearest():
    with pytest.raises(UserError, match="Did you mean perlmutter"):
        find_cluster("perlmuter")


def test_a_cluster_of_ones_own_may_not_take_a_known_name(tmp_path, monkeypatch):
    (tmp_path / "clusters").mkdir()
    text = resources.files("genaccel").joinpath("catalogue/clusters/voyager.toml").read_text()
    (tmp_path / "clusters" / "mine.toml").write_text(text)
    monkeypatch.setenv(hardware.USER_FOLDER, str(tmp_path))
    hardware.clusters.cache_clear()
    with pytest.raises(UserError, match=r"mine.toml describes voyager, which is there already"):
        clusters()
    monkeypatch.setenv(hardware.USER_FOLDER, str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="is no folder"):
        clusters()
    hardware.clusters.cache_clear()
