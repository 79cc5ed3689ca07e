"""What experiments/codesign.py runs: spaces, the comparison with brute force, case studies."""
