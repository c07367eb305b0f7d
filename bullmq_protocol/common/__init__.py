"""What every other room stands on: units, key layouts, replies, JSON and MessagePack as JavaScript writes them."""
