------------------------------- MODULE Check -------------------------------
EXTENDS Lock
CONSTANTS X, LX, LY
Lengths == [c \in Claims |-> IF c = X THEN LX ELSE LY]
=============================================================================
