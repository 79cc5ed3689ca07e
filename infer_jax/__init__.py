"""infer_jax"""
