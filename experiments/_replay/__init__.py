"""Servers that were measured request by request, or at given rates, replayed."""
