"""How long do tokens and activations take between chips?"""
