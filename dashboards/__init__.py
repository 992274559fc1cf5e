"""Dashboards, rules and alerts of podgpu, and the program that writes the dashboards."""
