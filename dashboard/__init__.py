"""slotune's Streamlit pages. They show and start; they compute nothing that tuner does not."""
