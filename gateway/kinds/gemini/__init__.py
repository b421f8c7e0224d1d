"""Google's Gemini API: generateContent, whole and as events.

In: a chat request; Gemini's responses. Out: a Gemini request; OpenAI's chunks.

Rights: pure.
"""
