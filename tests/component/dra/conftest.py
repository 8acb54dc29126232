"""What gRPC leaves is collected after each test."""

from tests.garbage import collect_grpc

__all__ = ["collect_grpc"]
