"""The part of podgpu that acts: holds each job to the caps that its annotations ask for, on this node only."""
