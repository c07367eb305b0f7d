"""What connections share, without a socket: addresses, handshake, topologies, the shape of a transport."""
