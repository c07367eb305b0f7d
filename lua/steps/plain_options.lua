--- step: options

-- As a condition: the end of a plain job counts no metrics, and a plain job is fetched without a rate limit.
options.maxMetricsSize == '' and not options.limiter and is_plain_ms(options.lockDuration)
