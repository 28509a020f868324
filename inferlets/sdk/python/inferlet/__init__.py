"""What an inferlet imports: the model, the chat, the client, and the forward pass itself (``inferlet.eta``)."""

__version__ = "0.1.0"
