"""Anthropic's Messages API, as its SDKs speak it: what it takes is in ``request``, what it answers in ``answer``."""

from pie_edge.server.anthropic.endpoints import routes
from pie_edge.server.anthropic.errors import error_response
from pie_edge.server.anthropic.models import PAGING, QUERY, model_response, models_response

__all__ = ["PAGING", "QUERY", "error_response", "model_response", "models_response", "routes"]
