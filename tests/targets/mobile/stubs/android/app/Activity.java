package android.app;

import android.content.Context;
import android.os.Bundle;
import android.view.View;

public class Activity extends Context {
    protected void onCreate(Bundle savedInstanceState) {}

    public void setContentView(View view) {}

    public final void runOnUiThread(Runnable action) {}
}
