"""What the pages of chapter 03 run: nodes, meetings at a store, groups, work of one rank."""
