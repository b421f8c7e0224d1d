"""Qwen's web chat, a server that keeps the conversation itself.

In: a chat request and what is known of its conversation. Out: the web chat's requests; OpenAI's chunks.

Rights: pure.
"""
