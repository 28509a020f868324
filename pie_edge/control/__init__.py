"""Who runs next, on which pages: queues, pages, scheduler and batch are pure; only the engine awaits a device."""
