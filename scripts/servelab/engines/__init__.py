"""Engines that serve a model, and the environments they run in. Imports core, machine and assets."""
