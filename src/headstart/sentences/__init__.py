"""The papers' notation for a pipeline of phases, read into plain data and printed back.

    OLL(Fed3R(ridge=gcv) + FedAvg-50(ψ)) + FP-25(ditto, ψ)

    sentence = ( "OLL" "(" phases ")" | phase ) { "+" phase }
    phases   = phase { "+" phase }
    phase    = name [ "-" rounds ] [ "(" [ argument { "," argument } ] ")" ] [ "-" rounds ]
    argument = part | method | key "=" value       a method (sgd, ditto) only in FP
    part     = "φ" | "ψ" | "f"                     or extractor, head, model; phi, psi, m
    value    = number | "true" | "false" | word | quoted text
    rounds   = integer [ "k" ]                     of FP: epochs

`HEAD-FT(algorithm, settings)` is `HEAD(settings) + algorithm(follow=true)`: the head's statistics
follow the extractor that the algorithm moves. A sentence is flat: OLL stands after the phases that
its parentheses hold. Names are those of the caller's registries, `my_module:MyHead` for an object
that has no other; no method is known here.
"""

from headstart.registry import folded
from headstart.sentences.parser import PERSONAL, parse
from headstart.sentences.sentence import Phase, Sentence, Value, from_plain, to_plain

__all__ = ["PERSONAL", "Phase", "Sentence", "Value", "folded", "from_plain", "parse", "to_plain"]
