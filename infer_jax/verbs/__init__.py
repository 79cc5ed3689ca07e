"""VERBS: one public function for each question, which the command line parses, calls and prints."""
