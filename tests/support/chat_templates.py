"""Chat templates in the manner of the known families, written for tests."""

from __future__ import annotations

CHATML = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""With a default system message; concatenates, so that null content is an error to Jinja."""

HEADERS = """\
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start|>' + message.role + '<|header|>\n\n' + (message.content | trim) + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant<|header|>\n\n' }}{% endif -%}
"""
"""BOS once, content trimmed."""

INSTRUCT = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate, starting with the user') }}
    {%- endif %}
    {%- if message.role == 'user' %}{{ '[INST] ' + message.content + ' [/INST]' }}
    {%- else %}{{ message.content + eos_token }}{% endif %}
{%- endfor %}"""
"""No system message, no cue."""

FOLDED = """\
{{- bos_token }}
{%- set ns = namespace(first='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% set ns.first = message.content + '\n\n' %}
    {%- else %}
        {{- '<turn>' + message.role + '\n' + ns.first + message.content + '<end>\n' }}
        {%- set ns.first = '' %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}"""
"""The system message goes into the first user turn."""

THINKING = """\
{%- set ns = namespace(last=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- if loop.index0 > ns.last %}{% set content = '<think>\n' + thought + '\n</think>\n\n' + content %}{% endif %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + content }}
    {%- for call in message.tool_calls %}
        {{- '<tool_call>' }}{{ call.function | tojson }}{{ '</tool_call>' }}
        {{- call.function.arguments | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
"""Drops the reasoning of earlier turns, keeps that of the last; tool arguments as objects."""

NULLABLE = """\
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.content is none %}
        {{- '<call>' + message.tool_calls[0].function.name + message.tool_calls[0].function.arguments }}
    {%- else %}{{ '<' + message.role + '>' + message.content }}{% endif %}
{%- endfor %}"""
"""Tells a turn that calls by null content; tool arguments as JSON text."""

PARTS = """\
{%- for message in messages %}
    {{- message.role + ':' }}
    {%- if message.content is string %}{{ message.content }}
    {%- else %}{% for part in message.content %}{{ part.text if part.type == 'text' else '<image>' }}{% endfor %}
    {%- endif %}
{%- endfor %}"""
"""Content as a string or in parts."""

ONLY_PARTS = (
    "{% for message in messages %}{% for part in message['content'] %}{{ '<' + part['type'] + '>' + part['text'] }}"
    "{% endfor %}{% endfor %}"
)
TOOLS = """\
{%- if tools is not none %}
    {{- '<tools>' }}
    {%- for tool in tools %}{{ tool | tojson(indent=2) }}{% endfor %}
{%- endif %}
{%- for message in messages %}{{ message.role + ':' + message.content }}{% endfor %}"""
