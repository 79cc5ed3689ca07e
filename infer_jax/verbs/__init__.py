"""The verbs: one public function for each question, which the command calls and prints."""
