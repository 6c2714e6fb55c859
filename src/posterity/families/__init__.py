"""The families by name. A family is imported only when it is asked for."""

from __future__ import annotations

from posterity.families.lookup import FAMILIES, family_name, family_type, find_family, make_family

__all__ = ["FAMILIES", "family_name", "family_type", "find_family", "make_family"]
