"""English words that say nothing about what is talked of or looked for."""

_COMMONEST = """
a about above after again all also am an and any are as at be because been before being below between both but by can
cannot could did do does doing down during each few for from get had has have having he her here hers him his how i if
in into is it its itself just let like me more most my no nor not now of off on once only or other our ours out over
own please same she should so some such than that the their theirs them then there these they this those through to
too under until up us very was we were what when where which while who whom why will with would you your yours
"""
COMMONEST = frozenset(_COMMONEST.split())
"""In any text: searching and vectors leave them out."""

_OF_TALK = """
against almost already although always among another anybody anything around away back become begin better came come
comes done either else enough even ever every everything find first gets give given goes going gone herself himself
however instead keep know known last later least less made make makes many maybe might much must myself need needs
neither never none nothing often onto others ourselves perhaps says seem seems shall show since something soon still
take tell themselves thing things though thus together upon used using want wants well went whatever whether whose
within without yeah yourself
"""
OF_TALK = frozenset(_OF_TALK.split())
"""In talk, beside those: what somebody says of what is to be done, not what it is about."""
