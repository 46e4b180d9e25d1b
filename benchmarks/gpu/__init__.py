"""The project on a GPU, in four phases of less than nine minutes each: docs/gpu.md."""
