"""What packages for Android and for iOS share: ports of a typed API, pictures and sounds as inputs, golden vectors."""
