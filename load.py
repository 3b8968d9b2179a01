import httpx, json, time, sys, random, threading, collections, os
B='http://127.0.0.1:8031'; T={n:open(f'/tmp/dev/p4/R2/{n}.tok').read().strip() for n in('ana','bob')}
def docs(n): return {d['document_id'] for d in httpx.get(B+'/documents?page_size=200',headers={'Authorization':'Bearer '+T[n]},trust_env=False).json()['results']}
def chunks(n):
    out=[]
    for d in list(docs(n)):
        r=httpx.get(f'{B}/documents/{d}/chunks?page_size=200',headers={'Authorization':'Bearer '+T[n]},trust_env=False)
        if r.status_code==200: out+=[c['text'] for c in r.json()['results']]
    return sorted(set(out))
texts={n:[t for t in chunks(n) if 200<len(t)<3000 and '"' not in t and ' -' not in t and '\n-' not in t and '“' not in t] for n in T}
print({n:len(t) for n,t in texts.items()},flush=True)
log=open('/tmp/dev/p4/R2/load.jsonl','a'); lock=threading.Lock()
norm=lambda s:' '.join(s.split())
def ask(i):
    n='ana' if i%3 else 'bob'; mode=('vector','hybrid','text')[(i//3)%3]; t=texts[n][(i*7)%len(texts[n])]
    s=time.time(); e={'t':s,'u':n,'m':mode}
    try:
        r=httpx.post(B+'/search',json={'query':t,'k':5,'mode':mode},headers={'Authorization':'Bearer '+T[n]},timeout=30,trust_env=False)
        e['s']=r.status_code; e['ms']=round((time.time()-s)*1000)
        if r.status_code==200:
            p=r.json()['passages']; e['n']=len(p); e['sim']=p[0]['parts']['vector']['similarity'] if p and p[0]['parts']['vector'] else None
            e['same']=any(norm(x['text'])==norm(t) for x in p); e['fn']=sorted({x['filename'] for x in p}); e['d']=sorted({x['document_id'] for x in p})
            e['minsim']=min([x['parts']['vector']['similarity'] for x in p if x['parts']['vector']] or [9])
        else: e['b']=r.text[:200]; e['ra']=r.headers.get('retry-after')
    except Exception as x: e['x']=repr(x)[:150]; e['ms']=round((time.time()-s)*1000)
    with lock: log.write(json.dumps(e)+'\n'); log.flush()
end=time.time()+float(sys.argv[1]); i=0
while time.time()<end:
    threading.Thread(target=ask,args=(i,),daemon=True).start(); i+=1; time.sleep(0.1)
time.sleep(5)
