"""Google's Generative Language API, as the SDK ``google-genai`` speaks it: what it takes is in ``request``, what it answers in
``answer``."""

from pie_edge.server.google.endpoints import routes
from pie_edge.server.google.errors import error_response
from pie_edge.server.google.models import PAGING, QUERY, model_response, models_response

__all__ = ["PAGING", "QUERY", "error_response", "model_response", "models_response", "routes"]
