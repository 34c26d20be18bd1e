"""python -m llmgw is llmgw."""

from llmgw.cli.main import main

if __name__ == "__main__":
    main()
