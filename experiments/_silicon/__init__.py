"""Which of aiconfigurator's measured rows can be fitted, and how well are they?"""
