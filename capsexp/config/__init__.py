"""The configuration: its schema, its checks, and its composition from the files in conf/."""
