"""Bytes to meaning and back: SSE, JSON, the OpenAI chat shapes. No sockets, no clocks."""
