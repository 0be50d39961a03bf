"""The HTTP interface of the ingress: routes, problem documents, server-sent events, the OpenAI dialect."""
