"""The serving model beside measured rows of others, whatever was fitted to them."""
