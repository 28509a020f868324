from pie_edge.cli import main

main()
