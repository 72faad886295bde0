"""Naming cards, inventories by hand, and the NVML adapter on a pretend driver."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from motley_planner import nvml
from motley_planner.inventory import Card, InventoryError, Node, pretend_cards, read_inventory, resolve_cards

CARDS = (
    Card("GPU-1f2e", "RTX5090", 32_607, cuda_index=0),
    Card("GPU-77ab", "RTX3080", 20_480, cuda_index=1),
    Card("GPU-77cd", "RTX3080", 20_480, cuda_index=None),
)


def test_names_are_indices_uuids_or_prefixes_in_mixed_lists():
    found = resolve_cards(["1", " GPU-1f2e", "GPU-77c"], CARDS, 3)
    assert [card.uuid for card in found] == ["GPU-77ab", "GPU-1f2e", "GPU-77cd"]


def test_a_full_uuid_wins_over_a_longer_one_with_the_same_start():
    cards = (Card("GPU-1", "a", 1), Card("GPU-12", "b", 1))
    assert resolve_cards(["GPU-1"], cards, 1) == [cards[0]]


PRESENT = "present: 0 GPU-1f2e RTX5090 32607 MiB, 1 GPU-77ab RTX3080 20480 MiB, - GPU-77cd RTX3080 20480 MiB"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["0", "1"], "--rank-gpu-id: 2 entries for --tp-size 1; give one GPU per rank"),
        ([], "--rank-gpu-id: 0 entries for --tp-size 1; give one GPU per rank"),
        (["GPU-9c"], f'--rank-gpu-id: no GPU "GPU-9c"; {PRESENT}'),
        (["2"], f'--rank-gpu-id: no GPU "2"; {PRESENT}'),
        ([""], f'--rank-gpu-id: no GPU ""; {PRESENT}'),
        (["-1"], f"--rank-gpu-id: -1 is negative; give a CUDA index or a UUID; {PRESENT}"),
        (["GPU-77"], f'--rank-gpu-id: "GPU-77" fits 2 GPUs; give more of the UUID; {PRESENT}'),
    ],
)
def test_unresolvable_names_list_the_cards_present(names, message):
    with pytest.raises(InventoryError) as caught:
        resolve_cards(names, CARDS, 1)
    assert str(caught.value) == message


def test_pretend_cards_carry_their_budgets():
    assert [(card.uuid, card.total_mib, card.kind) for card in pretend_cards((6, 3))] == [
        ("CPU-0", 6, "cpu"),
        ("CPU-1", 3, "cpu"),
    ]


def test_an_inventory_is_read_from_yaml(tmp_path):
    path = tmp_path / "inventory.yaml"
    path.write_text(
        """
        nodes:
          - name: attic
            driver: "580.95"
            cards:
              - {uuid: GPU-1f2e, product: RTX 5090, total_mib: 32607, pci_bus_id: "0000:01:00.0"}
              - {uuid: GPU-77ab, product: RTX 3080, total_mib: 20480, used_mib: 512}
        """
    )
    cards = read_inventory(path).cards
    assert [(card.uuid, card.node, card.used_mib) for card in cards] == [
        ("GPU-1f2e", "attic", 0),
        ("GPU-77ab", "attic", 512),
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("nodes: [", "cannot be read as YAML"),
        ("[]", r"document: \[\] is not an object"),
        ("nodes: 3", "nodes: 3 is not a list"),
        (
            "nodes: [{name: a, cards: [{uuid: 5, product: x, total_mib: 1}]}]",
            r"nodes\[0\].cards\[0\].uuid: 5 is not a string",
        ),
        ("nodes: [{name: a, cards: [{uuid: u, product: x, total_mib: 0}]}]", r"cards\[0\]: total_mib: 0 MiB of u"),
        ("nodes: [{name: a, cards: [{uuid: u, product: x, total_mib: 1, used_mib: 2}]}]", "used_mib: 2 MiB"),
        ("nodes: [{name: a, cards: [{uuid: u, product: x, total_mib: 1, vram: 2}]}]", "vram: unknown field"),
        ("nodes: [{name: a, cards: [{uuid: u, product: 2026-01-01, total_mib: 1}]}]", 'product: "2026-01-01" is not'),
        (
            "nodes: [{name: a, cards: [{uuid: u, product: x, total_mib: 1}, {uuid: u, product: x, total_mib: 1}]}]",
            r"nodes\[0\]: cards: u is listed twice on node a",
        ),
    ],
)
def test_faulty_inventories_name_the_field(tmp_path, text, fault):
    path = tmp_path / "inventory.yaml"
    path.write_text(text)
    with pytest.raises(InventoryError, match=fault):
        read_inventory(path)


def test_a_missing_inventory_is_named(tmp_path):
    with pytest.raises(InventoryError, match=r"nowhere\.yaml: cannot be read"):
        read_inventory(tmp_path / "nowhere.yaml")


class PretendNvml:
    """Two cards in PCI order; the second reports no memory if ``unified``."""

    class NVMLError(Exception):
        pass

    def __init__(self, fails="", unified=False):
        self.fails, self.unified, self.open = fails, unified, False

    def nvmlInit(self):  # noqa: N802
        if self.fails == "init":
            raise self.NVMLError("Driver Not Loaded")
        self.open = True

    def nvmlShutdown(self):  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 2

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return "580.95"

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return b"RTX 3080" if handle else "RTX 5090"

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        if handle and self.unified:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(total=20_480 << 20, used=(100 << 20) + 1)

    def nvmlDeviceGetCudaComputeCapability(self, handle):  # noqa: N802
        return (8, 6)

    def nvmlDeviceGetPciInfo(self, handle):  # noqa: N802
        return SimpleNamespace(busId=f"0000:0{handle}:00.0")


@pytest.fixture
def pretend(monkeypatch):
    def install(**options):
        driver = PretendNvml(**options)
        monkeypatch.setitem(sys.modules, "pynvml", driver)
        return driver

    return install


def test_cuda_indices_are_joined_by_uuid_not_by_position(pretend):
    driver = pretend()
    # CUDA sees the second card first and masks the other one
    node = nvml.local_node("box", cuda_order=lambda: {"GPU-1": 0})
    assert [(card.uuid, card.cuda_index, card.product) for card in node.cards] == [
        ("GPU-0", None, "RTX 5090"),
        ("GPU-1", 0, "RTX 3080"),
    ]
    assert (node.cards[0].total_mib, node.cards[0].used_mib, node.driver) == (20_480, 101, "580.95")
    assert resolve_cards(["0"], node.cards, 1)[0].uuid == "GPU-1"
    assert not driver.open


def test_no_driver_says_what_to_do(pretend):
    pretend(fails="init")
    with pytest.raises(InventoryError, match=r"NVML: Driver Not Loaded; install the NVIDIA driver .*or use CPU ranks"):
        nvml.local_node(cuda_order=dict)


def test_a_card_without_a_memory_total_is_named_and_nvml_is_closed(pretend):
    driver = pretend(unified=True)
    with pytest.raises(InventoryError, match="GPU-1 reports no memory total"):
        nvml.local_node(cuda_order=dict)
    assert not driver.open


def test_importing_the_adapter_does_not_load_nvml():
    program = "import sys, motley_planner.nvml; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_node_cannot_list_a_card_twice():
    with pytest.raises(InventoryError, match="GPU-1f2e is listed twice on node box"):
        Node("box", (CARDS[0], CARDS[0]))
