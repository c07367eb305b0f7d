"""The relay of BullMQ 6.4.0 and later: messages from process to process, beside the queues."""
