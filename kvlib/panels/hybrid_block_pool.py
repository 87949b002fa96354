"""The controls of the hybrid lesson, in its order: layers, page, groups, pool, printed size, releases."""

from kvlib.panels.hybrid_layers import Groups, LayersOfAModel
from kvlib.panels.hybrid_page import OnePage, StateByVersion
from kvlib.panels.hybrid_sizes import LengthTable, SizeAgainstLength
from kvlib.panels.hybrid_tenants import TwoTenants

__all__ = ["Groups", "LayersOfAModel", "LengthTable", "OnePage", "SizeAgainstLength", "StateByVersion", "TwoTenants"]
