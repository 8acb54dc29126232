"""What a clock says, printed as ratios within one run: machines are shared, and seconds lie."""
