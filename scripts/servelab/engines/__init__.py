"""Engines that serve a model, and the environments they run in. May import answers and the rooms below it."""
