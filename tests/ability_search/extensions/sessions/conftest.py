from tests.ability_search.flows.conftest import data_dir, network, start

__all__ = ["data_dir", "network", "start"]
